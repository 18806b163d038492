// Package logout checks OpenID Connect Back-Channel Logout requests before
// they cost anything: the request's headers, the form, the shape and the
// claims of the logout token, and, where the operator names the issuer's keys,
// its signature.
//
// The checks follow OpenID Connect Back-Channel Logout 1.0 §2.4 to §2.6 and
// are stricter only where no known provider differs. A token whose shape is
// wrong never causes a key lookup; an unknown key id causes at most one
// refresh of the key set per interval, never one per request.
//
// No error or formatted value of this package contains a token.
package logout
