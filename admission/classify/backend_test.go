package classify

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackendOracle compares the model of git-http-backend with the installed
// one, run as a CGI program on a repository that allows pushes. It is skipped
// where git is not installed; the model itself is always used.
func TestBackendOracle(t *testing.T) {
	execPath, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Skip("git is not installed:", err)
	}
	root := t.TempDir()
	repo := filepath.Join(root, "o", "r.git")
	for _, args := range [][]string{{"init", "-q", "--bare", repo}, {"-C", repo, "config", "http.receivepack", "true"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	backend := filepath.Join(strings.TrimSpace(string(execPath)), "git-http-backend")
	for _, f := range backendRequests() {
		pathInfo, query, _ := strings.Cut(f.Target, "?")
		cmd := exec.Command(backend)
		cmd.Env = append(os.Environ(), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=u",
			"REQUEST_METHOD="+f.Method, "PATH_INFO="+pathInfo, "QUERY_STRING="+query, "CONTENT_TYPE="+strings.Join(f.ContentType, ", "))
		out, _ := cmd.Output() // a refusal may end the program with an error
		want := viaBackend(f, func(f *Facts) (string, string, bool) { return pathInfo, query, true })
		if got := ran(string(out)); got != want {
			t.Errorf("%s %q: git ran %q, the model says %q", f.Method, f.Target, got, want)
		}
	}
}

// ran reads from a CGI answer which service was run.
func ran(answer string) string {
	head, _, _ := strings.Cut(answer, "\r\n\r\n")
	for _, s := range []string{UploadPack, ReceivePack} {
		switch {
		case strings.Contains(head, "application/x-"+s+"-advertisement"):
			return s + " adv"
		case strings.Contains(head, "application/x-"+s+"-result"):
			return s + " rpc"
		}
	}
	return ""
}

func backendRequests() (all []*Facts) {
	for _, query := range []string{
		"", "service=git-upload-pack", "service=git-receive-pack", "service=git%2Dreceive-pack", "ser%76ice=git-receive-pack",
		"service=git-upload-pack&service=git-receive-pack", "service=git-receive-pack&service=git-upload-pack", "service=git-receive-pack&service=x",
		"service&git-receive-pack", "service&git%2Dupload-pack&x", "service&x&git-receive-pack", "service&git-receive-pack&service=x",
		"&service=git-receive-pack", "&&service=git-receive-pack", "x&service=git-receive-pack", "x=service=git-receive-pack", "?service=git-receive-pack",
		"service=git-receive-pack+", "service=git-receive-pack%00", "service=git-receive-pack;x=1", "service=git-receive-pack&%zz", "service=git-foo", "SERVICE=git-receive-pack",
	} {
		all = append(all, &Facts{Method: "GET", Target: "/o/r.git/info/refs?" + query})
	}
	for _, path := range []string{"/o/r/info/refs", "/o//r.git/info/refs", "/o/./r.git/info/refs", "/o/r.git/info/refs/", "/o/r.git/info//refs", "/o/r.git/INFO/refs", "/o/r.git/info/refs\n"} {
		all = append(all, &Facts{Method: "GET", Target: path + "?service=git-upload-pack"}, &Facts{Method: "HEAD", Target: path + "?service=git-upload-pack"})
	}
	for _, path := range []string{"/o/r.git/git-receive-pack", "/o/r/git-receive-pack", "/o/r.git/git-upload-pack", "/o/r.git//git-receive-pack", "/o/r.git/git-receive-pack/", "/o/r.git/git-receive-pack\n"} {
		for _, kind := range []Kind{ReadRPC, PushRPC} {
			for _, method := range []string{"GET", "POST", "PUT", "post"} {
				all = append(all, &Facts{Method: method, Target: path, ContentType: []string{kindTypes[kind]}})
			}
		}
	}
	return all
}
