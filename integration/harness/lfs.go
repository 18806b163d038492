package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// LFSStore is a server for git-lfs: the batch API with the basic transfer, object storage on disk and an empty list of locks.
// Debian packages the client and no server, so the harness brings this one. It asks for the same users as Apache; everything it
// serves needs one. The client is Debian's unchanged git-lfs.
type LFSStore struct {
	Addr string
	dir  string
}

const lfsMediaType = "application/vnd.git-lfs+json"

// StartLFSStore starts an empty store that answers below any path of the form …/info/lfs/….
func StartLFSStore(tb testing.TB) *LFSStore {
	tb.Helper()
	s := &LFSStore{dir: TempDir(tb)}
	server := httptest.NewServer(s)
	tb.Cleanup(server.Close)
	s.Addr = server.Listener.Addr().String()
	return s
}

// Object returns the stored bytes of an object, nil when there is none.
func (s *LFSStore) Object(oid string) []byte {
	b, err := os.ReadFile(filepath.Join(s.dir, oid))
	if err != nil {
		return nil
	}
	return b
}

var (
	lfsObject = regexp.MustCompile(`^(.*/info/lfs)/objects/([0-9a-f]{64})$`)
	lfsCall   = regexp.MustCompile(`^(.*/info/lfs)/(objects/batch|locks|locks/verify)$`)
)

// ServeHTTP answers one call of the LFS protocol.
func (s *LFSStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, secret, _ := r.BasicAuth()
	if !(user == Alice && secret == AliceSecret || user == Bob && secret == BobSecret && r.Method != http.MethodPut) {
		w.Header().Set("LFS-Authenticate", `Basic realm="git"`)
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		s.answer(w, http.StatusUnauthorized, map[string]string{"message": "credentials needed"})
		return
	}
	if m := lfsObject.FindStringSubmatch(r.URL.Path); m != nil {
		s.object(w, r, m[2])
		return
	}
	m := lfsCall.FindStringSubmatch(r.URL.Path)
	switch {
	case m == nil:
		s.answer(w, http.StatusNotFound, map[string]string{"message": "no such call"})
	case m[2] == "objects/batch":
		s.batch(w, r, m[1])
	case m[2] == "locks/verify":
		s.answer(w, http.StatusOK, map[string]any{"ours": []string{}, "theirs": []string{}})
	default:
		s.answer(w, http.StatusOK, map[string]any{"locks": []string{}})
	}
}

func (s *LFSStore) object(w http.ResponseWriter, r *http.Request, oid string) {
	path := filepath.Join(s.dir, oid)
	if r.Method != http.MethodPut {
		http.ServeFile(w, r, path)
		return
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	sum := sha256.Sum256(b)
	if err != nil || hex.EncodeToString(sum[:]) != oid {
		s.answer(w, http.StatusUnprocessableEntity, map[string]string{"message": "content does not match its name"})
		return
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		s.answer(w, http.StatusInternalServerError, map[string]string{"message": err.Error()})
	}
}

func (s *LFSStore) batch(w http.ResponseWriter, r *http.Request, base string) {
	var ask struct {
		Operation string `json:"operation"`
		Objects   []struct {
			OID  string `json:"oid"`
			Size int64  `json:"size"`
		} `json:"objects"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&ask); err != nil {
		s.answer(w, http.StatusUnprocessableEntity, map[string]string{"message": err.Error()})
		return
	}
	objects := []map[string]any{}
	for _, o := range ask.Objects {
		have := s.Object(o.OID) != nil
		entry := map[string]any{"oid": o.OID, "size": o.Size, "authenticated": true}
		action := map[string]any{
			"href":   fmt.Sprintf("http://%s%s/objects/%s", r.Host, base, o.OID),
			"header": map[string]string{"Authorization": r.Header.Get("Authorization")},
		}
		switch {
		case ask.Operation == "upload" && !have:
			entry["actions"] = map[string]any{"upload": action}
		case ask.Operation == "download" && have:
			entry["actions"] = map[string]any{"download": action}
		case ask.Operation == "download":
			entry["error"] = map[string]any{"code": 404, "message": "no such object"}
		}
		objects = append(objects, entry)
	}
	s.answer(w, http.StatusOK, map[string]any{"transfer": "basic", "objects": objects})
}

func (s *LFSStore) answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", lfsMediaType)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

// LFSRequest is the bytes of an LFS batch call for one object in the repository at path.
func LFSRequest(path string, header ...string) string {
	body := `{"operation":"download","transfers":["basic"],"objects":[{"oid":"` + strings.Repeat("ab", 32) + `","size":1}]}`
	lines := ""
	for _, h := range header {
		lines += h + "\r\n"
	}
	return "POST " + path + "/info/lfs/objects/batch HTTP/1.1\r\nHost: git.test\r\nUser-Agent: git-lfs/3.3.0\r\nConnection: close\r\n" +
		"Accept: " + lfsMediaType + "\r\nContent-Type: " + lfsMediaType + "; charset=utf-8\r\n" + lines +
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}
