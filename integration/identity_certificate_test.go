package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddy-admission/gateway/integration/harness"
)

// TestClientCertificates: a certificate that Caddy has verified makes a request a proven one, where the configuration trusts
// certificates. One that Caddy only asked for and never verified does not.
func TestClientCertificates(t *testing.T) {
	apache := harness.StartApache(t)
	repo := apache.Repository(t, "public.git")
	ours, theirs := newAuthority(t), newAuthority(t)
	dir := harness.TempDir(t)
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	own, private := ours.sign(t, &x509.Certificate{DNSNames: []string{"git.test"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		ca:   {Type: "CERTIFICATE", Bytes: ours.cert.Raw},
		cert: {Type: "CERTIFICATE", Bytes: own.Raw},
		key:  {Type: "PRIVATE KEY", Bytes: raw},
	} {
		harness.WriteFile(t, file, string(pem.EncodeToMemory(block)))
	}
	ports := map[string]int{}
	sites := ""
	for name, lines := range map[string]string{
		"verified":    "mode verify_if_given\n trust_pool file " + ca,
		"only_asked":  "mode request",
		"not_trusted": "mode verify_if_given\n trust_pool file " + ca,
	} {
		trust := "trust_certificates"
		if name == "not_trusted" {
			trust = ""
		}
		ports[name] = harness.Port(t)
		sites += fmt.Sprintf("https://git.test:%d {\n tls %s %s {\n client_auth {\n %s\n}\n}\n admission %s {\n total 16\n %s\n}\n %s\n}\n",
			ports[name], cert, key, lines, name, trust, proxyTo(apache.Addr, ""))
	}
	g := harness.StartGateway(t, harness.Config{Sites: sites})

	for _, c := range []struct {
		site, class string
		with        *authority // who signed the client's certificate; nil: it has none
	}{
		{"verified", "push", ours},
		{"verified", "discovery", nil},
		{"only_asked", "discovery", ours},
		{"only_asked", "discovery", theirs},
		{"not_trusted", "discovery", ours},
	} {
		before := g.State(t).Pools[c.site].Classes[c.class].Permits()
		if status, err := askOverTLS(t, ports[c.site], c.with, path(repo)+receiveRefs); err != nil || status != http.StatusUnauthorized {
			t.Errorf("%s: %d %v, want the server's 401", c.site, status, err)
		}
		if n := g.State(t).Pools[c.site].Classes[c.class].Permits() - before; n != 1 {
			t.Errorf("%s: class %s gave %d permits, want 1", c.site, c.class, n)
		}
	}
	if _, err := askOverTLS(t, ports["verified"], theirs, "/"); err == nil {
		t.Error("a certificate of somebody else's was let in")
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = a.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign completes a certificate and signs it, the authority's own for the first.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "test"}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// askOverTLS makes one request, with a certificate that signer has signed when there is one.
func askOverTLS(t *testing.T, port int, signer *authority, target string) (int, error) {
	t.Helper()
	config := &tls.Config{ServerName: "git.test", InsecureSkipVerify: true} // the server's certificate is not what is tested
	if signer != nil {
		cert, key := signer.sign(t, &x509.Certificate{KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		own := &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Minute}
	r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", port, target), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = fmt.Sprintf("git.test:%d", port)
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
