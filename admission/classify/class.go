package classify

import "github.com/caddy-admission/gateway/admission"

// Credential is what is known about the credential a request carries.
type Credential uint8

const (
	NoCredential Credential = iota
	Unusable                // a scheme or spelling that can never be proven
	Unproven                // well formed; nobody knows yet whether it is genuine
	Proven                  // the upstream accepted it where it refused a stranger
	numCredentials
)

var credentialNames = [numCredentials]string{"none", "unusable", "unproven", "proven"}

// String returns a fixed name, safe as a label.
func (c Credential) String() string {
	if c < numCredentials {
		return credentialNames[c]
	}
	return "invalid"
}

// Class returns the one class of a classified request. open says that this
// repository answered a credential-less request for this service lately. A
// refused request, should anybody ask, belongs to the class with least. For
// DumbHead the caller decides first whether the request is git at all.
func Class(r *Result, c Credential, open bool) admission.Class {
	switch {
	case r.Refuse != 0:
		return admission.Anonymous
	case r.Kind == Other || r.Kind >= numKinds:
		return admission.Other
	case r.Kind == LFSObject:
		return admission.LFS
	}
	switch c {
	case Proven:
		if r.Kind == PushDiscovery || r.Kind == PushRPC {
			return admission.Push
		}
		return admission.Read
	case Unproven:
		if r.Kind == ReadDiscovery || r.Kind == PushDiscovery || r.Kind == LFSBatch {
			return admission.Candidate
		}
	case NoCredential:
		// git-lfs begins bare too: it learns from the 401 that it must send
		// the credential git already has.
		if r.opens() && !open {
			return admission.Discovery
		}
	}
	return admission.Anonymous
}

// opens reports whether a client sends this request without its credential
// first, to be asked for it.
func (r *Result) opens() bool {
	switch r.Kind {
	case ReadDiscovery, PushDiscovery, LFSBatch, LFSLocks:
		return true
	}
	return false
}
