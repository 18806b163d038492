package logout

import (
	"encoding/json"
	"time"
)

const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

// claims are the checked claims of a logout token.
type claims struct {
	issuer   string
	audience []string
	issued   time.Time
	expires  time.Time
	hasExp   bool
}

// read reports whether the claims have the form the standard asks for: iss,
// aud, iat, jti and the event present, sub or sid or both, no nonce. exp is
// optional because a widely used provider does not send it.
func (c *claims) read(raw []byte) bool {
	m, ok := members(raw)
	if !ok {
		return false
	}
	if _, present := m["nonce"]; present {
		return false
	}
	if c.issuer, ok = text(m["iss"]); !ok {
		return false
	}
	if c.audience, ok = texts(m["aud"]); !ok {
		return false
	}
	if _, ok = text(m["jti"]); !ok {
		return false
	}
	if c.issued, ok = moment(m["iat"]); !ok {
		return false
	}
	if exp, present := m["exp"]; present {
		if c.expires, c.hasExp = moment(exp); !c.hasExp {
			return false
		}
	}
	return subject(m["sub"], m["sid"]) && event(m["events"])
}

// subject reports whether sub or sid names somebody and neither is malformed.
func subject(sub, sid json.RawMessage) bool {
	_, hasSub := text(sub)
	_, hasSID := text(sid)
	return (hasSub || hasSID) && (hasSub || sub == nil) && (hasSID || sid == nil)
}

// event reports whether the logout event is present as an object. Other
// events may stand beside it.
func event(raw json.RawMessage) bool {
	events, ok := members(raw)
	if !ok {
		return false
	}
	_, ok = members(events[logoutEvent])
	return ok
}

// texts reads a non-empty string or a non-empty list of such.
func texts(raw json.RawMessage) ([]string, bool) {
	if s, ok := text(raw); ok {
		return []string{s}, true
	}
	var list []string
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return nil, false
	}
	for _, s := range list {
		if s == "" {
			return nil, false
		}
	}
	return list, true
}

// moment reads a NumericDate between 1970 and 2200.
func moment(raw json.RawMessage) (time.Time, bool) {
	var seconds float64
	if len(raw) == 0 || raw[0] == '"' || raw[0] == 'n' || json.Unmarshal(raw, &seconds) != nil {
		return time.Time{}, false
	}
	if seconds < 0 || seconds > 7258118400 {
		return time.Time{}, false
	}
	return time.Unix(int64(seconds), 0), true
}

func (c *claims) check(now time.Time) *Refusal {
	if now.Sub(c.issued).Abs() > iatLeeway || (c.hasExp && now.Sub(c.expires) > expLeeway) {
		return refuse(BadTime)
	}
	return nil
}
