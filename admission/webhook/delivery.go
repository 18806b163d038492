package webhook

import (
	"time"
)

// Delivery is what a genuine request says about itself. Its strings come from
// a sender that knows the secret, are at most 255 bytes, and still must not
// become metric labels. "" means the sender did not say.
type Delivery struct {
	Profile    string
	ID         string    // as the sender numbers deliveries; a redelivery may repeat it
	Event      string    // as the sender names events
	Repository string    // full name inside the forge
	Verified   bool      // false for profiles whose credential only the receiver can check
	Expires    time.Time // when a signed timestamp stops being accepted; zero = never
}

const maxFact = 255

func (h *Head) delivery(body []byte) Delivery {
	p := h.v.profile
	d := Delivery{Profile: p.Name, ID: h.id, Event: h.event, Verified: p.NeedsSecret()}
	if p.Tolerance > 0 {
		d.Expires = h.signedAt.Add(p.Tolerance)
	}
	var wants []want
	for _, at := range p.repository {
		wants = append(wants, want{at, &d.Repository})
	}
	for _, s := range [...]struct {
		source
		to *string
	}{{p.id, &d.ID}, {p.event, &d.Event}} {
		if s.member != "" {
			wants = append(wants, want{path{member: s.member}, s.to})
		}
	}
	if len(wants) > 0 {
		findMembers(newScanner(body, h.form), wants)
	}
	return d
}
