package spool

import (
	"net/http"
	"strconv"
)

// Verdict is what a receiver's answer means for the delivery.
type Verdict string

// The verdicts.
const (
	Done  Verdict = "done"  // taken: nothing more is owed
	Again Verdict = "again" // not taken now: another attempt is worth it
	Never Verdict = "never" // will not be taken however often: set aside at once
)

func (v Verdict) valid() bool { return v == Done || v == Again || v == Never }

// ValidStatus reports whether key is a status code or a class like "5xx", and
// v a verdict.
func ValidStatus(key string, v Verdict) bool { return validStatusKey(key) && v.valid() }

// validStatusKey accepts 100..599 and 1xx..5xx.
func validStatusKey(s string) bool {
	if len(s) != 3 || s[0] < '1' || s[0] > '5' {
		return false
	}
	if s[1:] == "xx" {
		return true
	}
	_, err := strconv.ParseUint(s[1:], 10, 8)
	return err == nil
}

// Judge says what a status means. Own rules go first, an exact code before
// its class; then the table: 2xx done; 408, 425, 429 and 5xx again, except
// 501 and 505, which no repetition changes; everything else never, because
// the gateway has verified the delivery and the receiver still refuses it. A
// redirect is not followed: the receiver is not where the configuration says.
func Judge(status int, own map[string]Verdict) Verdict {
	code := strconv.Itoa(status)
	if v, ok := own[code]; ok {
		return v
	}
	if v, ok := own[code[:1]+"xx"]; ok {
		return v
	}
	switch {
	case status >= 200 && status < 300:
		return Done
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return Again
	case status == http.StatusNotImplemented, status == http.StatusHTTPVersionNotSupported:
		return Never
	case status >= 500:
		return Again
	}
	return Never
}

// senderStatus is what the sender is told when the receiver refused a fresh
// delivery for good. Senders disable a hook on 404 and 410 and take 429 for
// their own fault, so those become 502.
func senderStatus(status int) int {
	switch status {
	case http.StatusNotFound, http.StatusGone, http.StatusTooManyRequests:
		return http.StatusBadGateway
	}
	if status < 200 || status > 599 {
		return http.StatusBadGateway
	}
	return status
}
