package harness

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// GetTLS asks the site name at addr for a path over TLS, without checking the certificate, and waits until it has one.
func GetTLS(tb testing.TB, addr, name, path string) *http.Response {
	tb.Helper()
	transport := &http.Transport{
		DisableKeepAlives: true,
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{ServerName: name, InsecureSkipVerify: true}, // the certificate is the test's own
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		},
	}
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	var answer *http.Response
	Eventually(tb, 60*time.Second, "TLS answer of "+name, func() error {
		resp, err := client.Get("https://" + name + path)
		if err != nil {
			return err
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		answer = resp
		return nil
	})
	return answer
}
