package flood

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"strconv"
	"strings"
)

// runGit runs `git http-backend` for one request. Unlike net/http/cgi it takes
// chunked bodies, which git sends for every push above a megabyte.
func (b *Backend) runGit(w http.ResponseWriter, r *http.Request, user string) {
	if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
		Pause(b.root, b.cfg.Think)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	cmd := command(ctx, b.git)
	cmd.Env = b.environment(r, user)
	cmd.Stdin = r.Body
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		http.Error(w, "git did not start", http.StatusBadGateway)
		return
	}
	if err := copyAnswer(w, bufio.NewReaderSize(out, 64<<10)); err != nil {
		cancel() // nobody reads on: git would wait for ever
	}
	_ = r.Body.Close()
	_ = cmd.Wait()
}

func (b *Backend) environment(r *http.Request, user string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.cfg.Root, "GIT_HTTP_EXPORT_ALL=1",
		"GIT_PROJECT_ROOT=" + b.cfg.Root, "PATH_INFO=" + r.URL.Path, "QUERY_STRING=" + r.URL.RawQuery,
		"REQUEST_METHOD=" + r.Method, "CONTENT_TYPE=" + r.Header.Get("Content-Type"),
		"REMOTE_ADDR=127.0.0.1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}
	if r.ContentLength >= 0 {
		env = append(env, "CONTENT_LENGTH="+strconv.FormatInt(r.ContentLength, 10))
	}
	if e := r.Header.Get("Content-Encoding"); e != "" {
		env = append(env, "HTTP_CONTENT_ENCODING="+e)
	}
	if p := r.Header.Get("Git-Protocol"); p != "" {
		env = append(env, "GIT_PROTOCOL="+p)
	}
	if user != "" {
		env = append(env, "REMOTE_USER="+user)
	}
	return env
}

// copyAnswer turns the CGI answer (RFC 3875 §6) into an HTTP one.
func copyAnswer(w http.ResponseWriter, out *bufio.Reader) error {
	header, err := textproto.NewReader(out).ReadMIMEHeader()
	if err != nil {
		http.Error(w, "git broke off", http.StatusBadGateway)
		return err
	}
	status := http.StatusOK
	if s := header.Get("Status"); s != "" {
		code, _, _ := strings.Cut(s, " ")
		if n, err := strconv.Atoi(code); err == nil {
			status = n
		}
		header.Del("Status")
	}
	for k, v := range header {
		w.Header()[k] = v
	}
	w.WriteHeader(status)
	_, err = io.Copy(w, out)
	return err
}
