package admission

// Class says which capacity a request draws on. Every request has exactly one.
// The set is closed, so a class name is safe as a metric label.
type Class uint8

// The five git classes share one total; every other class has a pool of its own.
const (
	Push          Class = iota // git-receive-pack with a proven credential
	Read                       // git-upload-pack, archive, LFS batch with a proven credential
	Discovery                  // credential-less info/refs
	Candidate                  // info/refs or LFS batch with an unproven credential
	Anonymous                  // every other git request
	LFS                        // LFS object transfers
	Web                        // a forge's expensive pages
	Stream                     // WebSocket, server-sent events, gRPC
	Webhook                    // webhook verification
	Logout                     // back-channel logout
	LoginStart                 // start of a login
	LoginCallback              // return from the identity provider
	Other                      // everything else: never limited unless the operator caps it
	NumClasses
)

var classNames = [NumClasses]string{
	"push", "read", "discovery", "candidate", "anonymous", "lfs", "web", "stream",
	"webhook", "logout", "login_start", "login_callback", "other",
}

// String returns the name used in configuration, metrics and logs.
func (c Class) String() string {
	if c < NumClasses {
		return classNames[c]
	}
	return "invalid"
}

// ParseClass is the inverse of String.
func ParseClass(name string) (Class, bool) {
	for c, n := range classNames {
		if n == name {
			return Class(c), true
		}
	}
	return 0, false
}

// Git reports whether c is one of the five classes that share the total.
func (c Class) Git() bool { return c <= Anonymous }

// hasProof reports whether requests of the class carry a proven credential,
// so that its first caller cap counts per credential.
func (c Class) hasProof() bool { return c == Push || c == Read }

// pushPath lists the classes one push passes through, in order. None of them
// may be left with nothing.
var pushPath = [...]Class{Discovery, Candidate, Push}
