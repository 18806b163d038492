package classify

import "strings"

// Facts is what Classify looks at. Nothing in it is kept.
type Facts struct {
	Method          string
	Target          string   // request-target as the upstream will see it: escaped path [?query]; absolute-form allowed
	Host            string   // Host header or :authority
	ServerName      string   // TLS server name, "" if none
	ContentType     []string // header values, one element a line
	ContentEncoding []string
	ContentLength   int64 // -1 unknown
	Chunked         bool
	HTTP10          bool // does not change the answer: HTTP/1.0 clients speak git as well
}

// Result is what a request is. The zero value is a request that is not git.
type Result struct {
	// Kind is the git operation. When Refuse is set it is the one the request
	// resembles, for explanations only.
	Kind Kind
	// Repository is the canonical name for keys: decoded, without .git, slashes
	// merged, in lower case for the forge profiles; "/" is a repository at the
	// root. "" when Kind is Other or the request is refused.
	Repository string
	// Service is git-upload-pack, git-receive-pack, git-upload-archive or "".
	Service string
	// Canonical says that the spelling is the one and only one: the request may
	// prove a credential. It is false whenever Path is set, for an absolute-form
	// target and for a query that is not exactly what the kind asks for.
	Canonical bool
	// Path is the escaped path to forward when it differs from the one sent.
	// Forwarding anything else gives up what this package promises.
	Path string
	// Refuse is 0 or the status to answer: 400, 405, 415 or 421.
	Refuse int
	// Why is one short text for the refusal. It holds no byte of the request.
	Why string
}

// Texts of refusals, shown to a git user.
const (
	whySpelling    = "non-canonical git URL"
	whyBody        = "a request for info/refs carries no body"
	whyMethod      = "info/refs is asked for with GET"
	whyContentType = "the content type does not fit the git service"
	whyEncoding    = "a git request is sent plain or with gzip"
	whyHost        = "the URL names another host than the request"
)

// Classify says what a request is. It is pure, takes time linear in the length
// of the target, and allocates nothing when the answer is Other, unless a path
// longer than 512 bytes has several readings or a path that ends as git's do
// turns out not to be one.
func Classify(p Profile, f *Facts) Result {
	m := methodOf(f.Method)
	if m == noMethod {
		return Result{}
	}
	t, ok := splitTarget(f.Target)
	if !ok {
		return Result{}
	}
	r, ok := fit(p, m, &t, f)
	if !ok {
		k := lookAlike(p, m, &t)
		if k == Other {
			return Result{}
		}
		r = refuse(k, 400, whySpelling)
	}
	return check(r, m, &t, f)
}

func refuse(k Kind, status int, why string) Result {
	return Result{Kind: k, Service: kindServices[k], Refuse: status, Why: why}
}

// fit holds the target against the grammar.
func fit(p Profile, m method, t *target, f *Facts) (r Result, ok bool) {
	path := strings.TrimRight(t.path, "/")
	raw, k := tail(m, path)
	if k == Other || t.odd {
		return Result{}, false
	}
	exact := t.query == "" && !strings.HasSuffix(f.Target, "?")
	if k == DumbDiscovery {
		if k, ok = exactService(t.query); !ok {
			return Result{}, false
		}
		exact = k != DumbDiscovery || exact
	}
	if k.dumb() && len(path) != len(t.path) {
		return Result{}, false
	}
	decoded, canonical, ok := normalise(raw)
	if !ok || !p.anchored(decoded, k) {
		return Result{}, false
	}
	r = Result{Kind: k, Service: kindServices[k], Repository: p.name(decoded)}
	if len(canonical) != len(raw) || canonical != raw || len(path) != len(t.path) {
		r.Path = canonical + path[len(raw):]
	}
	r.Canonical = exact && r.Path == "" && !t.absolute
	return r, true
}

// exactService reads the query of info/refs as every git client spells it.
func exactService(query string) (k Kind, ok bool) {
	switch query {
	case "":
		return DumbDiscovery, true
	case "service=" + UploadPack:
		return ReadDiscovery, true
	case "service=" + ReceivePack:
		return PushDiscovery, true
	}
	return Other, false
}

// check holds everything but the target against the kind.
func check(r Result, m method, t *target, f *Facts) Result {
	k := r.Kind
	discovery := k == ReadDiscovery || k == PushDiscovery
	switch {
	case t.misdirected(f):
		return refuse(k, 421, whyHost)
	case discovery && m == head:
		return refuse(k, 405, whyMethod)
	case r.Refuse != 0:
		return r
	case discovery && (f.Chunked || f.ContentLength != 0):
		return refuse(k, 400, whyBody)
	case k == LFSBatch:
		r.Canonical = r.Canonical && isLFSType(f.ContentType)
	case k.Smart() && !discovery:
		return checkRPC(r, f)
	}
	return r
}

// checkRPC demands the content type git sends; git-http-backend compares it
// byte for byte, other servers not at all.
func checkRPC(r Result, f *Facts) Result {
	if len(f.ContentEncoding) > 0 && !isGzip(f.ContentEncoding) {
		return refuse(r.Kind, 415, whyEncoding)
	}
	switch {
	case len(f.ContentType) != 1:
	case f.ContentType[0] == kindTypes[r.Kind]:
		return r
	case r.Kind == ArchiveRPC && f.ContentType[0] == kindTypes[ReadRPC]:
		r.Canonical = false // some servers run it
		return r
	}
	return refuse(r.Kind, 415, whyContentType)
}

func isGzip(encoding []string) bool {
	return len(encoding) == 1 && (strings.EqualFold(encoding[0], "gzip") || strings.EqualFold(encoding[0], "x-gzip"))
}

// isLFSType accepts the media type with or without parameters, as git-lfs
// versions differ.
func isLFSType(contentType []string) bool {
	if len(contentType) != 1 {
		return false
	}
	media, _, _ := strings.Cut(contentType[0], ";")
	return strings.EqualFold(strings.TrimSpace(media), "application/vnd.git-lfs+json")
}
