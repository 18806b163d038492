package harness

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Browser is a user's browser: it keeps cookies, follows redirects and fills in the provider's forms.
type Browser struct {
	client *http.Client
	user   string
}

// NewBrowser returns a browser of user that connects from the loopback address source.
func NewBrowser(tb testing.TB, user, source string) *Browser {
	tb.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	transport := From(source)
	tb.Cleanup(transport.CloseIdleConnections)
	return &Browser{user: user, client: &http.Client{Jar: jar, Transport: transport, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// ask sends one request and returns the answer, its body, and where it redirects to.
func (b *Browser) ask(method, target string, form url.Values) (resp *http.Response, body, location string, err error) {
	req, err := http.NewRequest(method, target, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, "", "", err
	}
	req.Header.Set("Accept", "text/html,*/*")
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if resp, err = b.client.Do(req); err != nil {
		return nil, "", "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if l, e := resp.Location(); e == nil {
		location = l.String()
	}
	return resp, string(raw), location, err
}

var (
	interaction = regexp.MustCompile(`action="([^"]+/interaction/[^"]+)"`)
	xsrf        = regexp.MustCompile(`name="xsrf" value="([^"]+)"`)
)

// Visit opens page and signs in on the way if it is asked to. It returns the page's body, or the first answer that was
// neither a redirect, a form of the provider nor the page.
func (b *Browser) Visit(page string) (string, error) {
	resp, body, location, err := b.ask(http.MethodGet, page, nil)
	for range 20 {
		switch {
		case err != nil:
			return "", err
		case location != "":
			resp, body, location, err = b.ask(http.MethodGet, location, nil)
			continue
		case resp.StatusCode != http.StatusOK:
			return body, answerError("visit", resp)
		}
		action := interaction.FindStringSubmatch(body)
		if action == nil {
			return body, nil
		}
		form := url.Values{"prompt": {"login"}, "login": {b.user}, "password": {"x"}}
		if strings.Contains(body, `value="consent"`) {
			form = url.Values{"prompt": {"consent"}}
		}
		resp, body, location, err = b.ask(http.MethodPost, action[1], form)
	}
	return body, fmt.Errorf("visit: no end after 20 steps")
}

// SignedIn reports whether page is shown without another login.
func (b *Browser) SignedIn(page string) (bool, error) {
	resp, body, _, err := b.ask(http.MethodGet, page, nil)
	if err != nil {
		return false, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return body == SignedIn, nil
	case http.StatusFound:
		return false, nil
	}
	return false, answerError("look", resp)
}

// LogOut ends the session at the provider, which tells the relying party before it answers.
func (b *Browser) LogOut(issuer string) error {
	resp, body, _, err := b.ask(http.MethodGet, issuer+"/session/end", nil)
	if err != nil {
		return err
	}
	token := xsrf.FindStringSubmatch(body)
	if token == nil {
		return answerError("logout form", resp)
	}
	resp, _, _, err = b.ask(http.MethodPost, issuer+"/session/end/confirm", url.Values{"xsrf": {token[1]}, "logout": {"yes"}})
	if err == nil && resp.StatusCode >= 400 {
		err = answerError("logout", resp)
	}
	return err
}

// Cookies returns the values of the cookies the browser has for a site.
func (b *Browser) Cookies(site string) (values []string) {
	u, err := url.Parse(site)
	if err != nil {
		return nil
	}
	for _, c := range b.client.Jar.Cookies(u) {
		values = append(values, c.Value)
	}
	return values
}

// From returns a transport whose connections come from the loopback address source.
func From(source string) *http.Transport {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	return &http.Transport{DialContext: dialer.DialContext}
}
