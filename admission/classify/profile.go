package classify

import "strings"

// Profile is how the upstream spells repositories. The zero value is Generic.
type Profile uint8

const (
	Generic Profile = iota // any depth, any mount point, with or without .git; names keep their case
	Gitea                  // exactly owner/name
	Forgejo                // exactly owner/name
	GitLab                 // any depth, the last segment ends in .git
	Gogs                   // exactly owner/name
	Cgit                   // as Generic
	numProfiles
)

var profileNames = [numProfiles]string{"generic", "gitea", "forgejo", "gitlab", "gogs", "cgit"}

// String returns the name used in the configuration.
func (p Profile) String() string {
	if p < numProfiles {
		return profileNames[p]
	}
	return "invalid"
}

// ParseProfile is the inverse of String.
func ParseProfile(name string) (Profile, bool) {
	for p, n := range profileNames {
		if n == name {
			return Profile(p), true
		}
	}
	return 0, false
}

// twoSegments reports whether a repository is exactly owner/name.
func (p Profile) twoSegments() bool { return p == Gitea || p == Forgejo || p == Gogs }

// foldsCase reports whether the upstream finds a repository by its lower-case name.
func (p Profile) foldsCase() bool { return p.twoSegments() || p == GitLab }

// name is the canonical name of the repository at path: without the slashes
// around it and without .git, so that one repository has one key. Different
// repositories may share a name (x and x.git beside each other); they then
// share a budget.
func (p Profile) name(path string) string {
	name := strings.TrimPrefix(path, "/")
	if p.foldsCase() {
		name = strings.ToLower(name)
	}
	if name == ".git" || strings.HasSuffix(name, "/.git") {
		name = strings.TrimSuffix(strings.TrimSuffix(name, ".git"), "/")
	}
	name = strings.TrimSuffix(name, ".git")
	if name == "" {
		return "/" // the repository at the root of the site
	}
	return name
}
