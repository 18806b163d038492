package classify

import (
	"net/url"
	"slices"
	"strings"
)

// Preset is what is known of a forge's pages and sessions. Paths are in lower
// case, at the root of the site; in a pattern "*" stands for one segment. A
// Preset is shared and must not be changed.
//
// To add one: add a Profile and its name, fill in a Preset below, add its pages
// to testdata/pages.tsv and its lines to docs/classes.md (a test compares them).
type Preset struct {
	// Dear are the names of expensive pages. Where they stand is the layout's
	// business.
	Dear []string
	// Layout says where a dear page's name stands in a path.
	Layout Layout
	// Reserved are first segments that are no owner of repositories.
	Reserved []string
	// Queries are parameters that make any page dear.
	Queries []string
	// API are patterns of expensive API calls; a last segment ending in "."
	// matches every name that begins so.
	API []string
	// Streams are the paths of event streams and long polls.
	Streams []string
	// SignIn are the steps of signing in, SignOut those of signing out.
	SignIn, SignOut []string

	// Cookie is the name of the session cookie, "" for a forge without
	// sessions. Having one proves nothing: strangers get one too.
	Cookie string
	// WhoAmI is the API path that names the user of an Authorization line.
	WhoAmI string
	// BearerOnly says that WhoAmI does not take Basic: the secret of a Basic
	// line is asked about as a bearer token.
	BearerOnly bool
	// JobAPI names a running job of the CI by its token, sent as JOB-TOKEN.
	JobAPI string
	// Session is a page that sends strangers to SignIn, or an API path like
	// WhoAmI that takes the session cookie.
	Session string
}

// Layout is where the name of a dear page stands in a path.
type Layout uint8

const (
	// AfterRepository: /owner/name/PAGE/…
	AfterRepository Layout = iota
	// AfterDash: /group/…/project/-/PAGE/…
	AfterDash
	// Anywhere below the first segment: /repository/PAGE/… under any mount.
	Anywhere
)

// Preset returns the preset of a forge, nil for Generic.
func (p Profile) Preset() *Preset {
	if p < numProfiles {
		return presets[p]
	}
	return nil
}

var presets = [numProfiles]*Preset{
	Gitea:   giteaPreset(),
	Forgejo: giteaPreset(),
	GitLab: {
		Layout: AfterDash,
		Dear: []string{"archive", "blame", "blob", "commit", "commits", "compare", "find_file", "graphs", "merge_requests",
			"network", "raw", "refs", "tree", "wikis"},
		API: []string{
			"/api/*/projects/*/repository/archive", "/api/*/projects/*/repository/archive.", "/api/*/projects/*/repository/compare",
			"/api/*/projects/*/*/repository/archive", "/api/*/projects/*/*/repository/archive.",
		},
		Streams: []string{"/-/cable", "/api/v4/jobs/request"},
		SignIn: []string{"/users/sign_in", "/users/auth/*/callback", "/users/auth/*", "/users/password/new",
			"/-/user_settings/password/new", "/-/profile/password/new"},
		SignOut:    []string{"/users/sign_out"},
		Cookie:     "_gitlab_session",
		WhoAmI:     "/api/v4/user",
		BearerOnly: true,
		JobAPI:     "/api/v4/job",
		Session:    "/api/v4/user",
	},
	Gogs: {
		Layout:   AfterRepository,
		Dear:     []string{"archive", "commit", "commits", "compare", "issues", "pulls", "raw", "src", "wiki"},
		Reserved: reservedOwners,
		API:      []string{"/api/v1/repos/*/*/archive/*"},
		SignIn:   []string{"/user/login", "/user/login/two_factor", "/user/login/two_factor_recovery_code"},
		SignOut:  []string{"/user/logout"},
		Cookie:   "i_like_gogs",
		WhoAmI:   "/api/v1/user",
		Session:  "/user/settings",
	},
	Cgit: {
		Layout:  Anywhere,
		Dear:    []string{"atom", "blame", "commit", "diff", "log", "patch", "plain", "rawdiff", "snapshot", "stats", "tree"},
		Queries: []string{"id", "id2", "h", "p", "q", "url"},
	},
}

func giteaPreset() *Preset {
	return &Preset{
		Layout: AfterRepository,
		Dear: []string{"activity", "archive", "atom", "blame", "commit", "commits", "compare", "find", "graph", "issues",
			"media", "pulls", "raw", "rss", "src", "tree-list", "wiki"},
		Reserved: reservedOwners,
		API: []string{"/api/v1/repos/*/*/archive/*", "/api/v1/repos/*/*/archive/*/*", "/api/v1/repos/*/*/compare/*",
			"/api/v1/repos/*/*/git/trees/*"},
		Streams: []string{"/user/events", "/api/actions/runner.v1.runnerservice/fetchtask"},
		SignIn: []string{"/user/login", "/user/login/openid", "/user/two_factor", "/user/two_factor/scratch", "/user/webauthn",
			"/user/webauthn/assertion", "/user/link_account", "/user/link_account_signin", "/user/settings/change_password",
			"/user/oauth2/*/callback", "/user/oauth2/*"},
		SignOut: []string{"/user/logout"},
		Cookie:  "i_like_gitea",
		WhoAmI:  "/api/v1/user",
		Session: "/user/settings",
	}
}

// reservedOwners are names that Gitea, Forgejo and Gogs give to no account, so
// nothing below them is a repository.
var reservedOwners = []string{
	"-", ".well-known", "admin", "api", "assets", "attachments", "avatar", "avatars", "captcha", "css", "debug", "devtest",
	"error", "explore", "fonts", "img", "install", "issues", "js", "less", "login", "manifest.json", "metrics", "milestones",
	"new", "notifications", "org", "plugins", "pulls", "raw", "repo", "repo-avatars", "robots.txt", "search",
	"serviceworker.js", "ssh_info", "swagger.v1.json", "template", "user", "v2",
}

// dear reports whether a page is expensive.
func (s *Preset) dear(segments []string, query string) bool {
	if s.asksDear(query) {
		return true
	}
	for _, pattern := range s.API {
		if matchPrefix(pattern, segments) {
			return true
		}
	}
	switch s.Layout {
	case AfterRepository:
		return len(segments) >= 3 && !slices.Contains(s.Reserved, segments[0]) && slices.Contains(s.Dear, segments[2])
	case AfterDash:
		for i := 2; i+1 < len(segments); i++ {
			if segments[i] == "-" && slices.Contains(s.Dear, segments[i+1]) {
				return true
			}
		}
	case Anywhere:
		for i := 1; i < len(segments); i++ {
			if slices.Contains(s.Dear, segments[i]) {
				return true
			}
		}
	}
	return false
}

// matchPrefix is matchPattern in which a pattern's last segment may end in "."
// for every name that begins so.
func matchPrefix(pattern string, segments []string) bool {
	if !strings.HasSuffix(pattern, ".") {
		return matchPattern(pattern, segments)
	}
	n := len(segments)
	cut := strings.LastIndexByte(pattern, '/')
	return n > 0 && strings.HasPrefix(segments[n-1], pattern[cut+1:]) && matchPattern(pattern[:cut], segments[:n-1])
}

// asksDear reports whether a query has a parameter that makes a page dear. A
// name that cannot be decoded is taken for one.
func (s *Preset) asksDear(query string) bool {
	if len(s.Queries) == 0 {
		return false
	}
	for query != "" {
		var pair string
		end := strings.IndexAny(query, "&;")
		if end < 0 {
			pair, query = query, ""
		} else {
			pair, query = query[:end], query[end+1:]
		}
		name, _, _ := strings.Cut(pair, "=")
		decoded, err := url.QueryUnescape(name)
		if err != nil || slices.Contains(s.Queries, decoded) {
			return true
		}
	}
	return false
}
