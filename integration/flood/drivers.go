package flood

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"
)

// Clone clones repo (a path like /pub.git) without a credential, as git with
// protocol v0 does: the refs, then everything. tip is the commit it asks for.
func Clone(repo, tip string) Driver {
	return func(ctx context.Context, c *Client) []Answer {
		refs := c.Send(ctx, http.MethodGet, repo+"/info/refs?service=git-upload-pack", "Pragma: no-cache\r\n", "")
		if refs.Status != http.StatusOK {
			return []Answer{refs}
		}
		return []Answer{refs, fetch(ctx, c, repo, tip, "")}
	}
}

// Fetch sends only the request that makes the upstream work.
func Fetch(repo, tip string) Driver {
	return func(ctx context.Context, c *Client) []Answer {
		return []Answer{fetch(ctx, c, repo, tip, "")}
	}
}

func fetch(ctx context.Context, c *Client, repo, tip, header string) Answer {
	body := pkt("want "+tip+" side-band-64k ofs-delta no-progress\n") + "0000" + pkt("done\n")
	return c.Send(ctx, http.MethodPost, repo+"/git-upload-pack", fmt.Sprintf(
		"Content-Type: application/x-git-upload-pack-request\r\nContent-Length: %d\r\n%s", len(body), header), body)
}

// Garbage makes up a credential for every run: odd ones ask to push and are
// answered 401, even ones clone a public repository, where it is accepted.
func Garbage(repo, tip string) Driver {
	return func(ctx context.Context, c *Client) []Answer {
		header := BasicHeader(fmt.Sprintf("user%d", c.Number), fmt.Sprintf("made-up-%d", c.Number))
		if c.Number%2 == 1 {
			return []Answer{c.Send(ctx, http.MethodGet, repo+"/info/refs?service=git-receive-pack", header, "")}
		}
		refs := c.Send(ctx, http.MethodGet, repo+"/info/refs?service=git-upload-pack", header, "")
		if refs.Status != http.StatusOK {
			return []Answer{refs}
		}
		return []Answer{refs, fetch(ctx, c, repo, tip, header)}
	}
}

// Discover only knocks: push discovery without a credential.
func Discover(repo string) Driver {
	return func(ctx context.Context, c *Client) []Answer {
		return []Answer{c.Send(ctx, http.MethodGet, repo+"/info/refs?service=git-receive-pack", "", "")}
	}
}

// DiscoverMany is Discover of a repository of each run's own: pattern holds a %d.
func DiscoverMany(pattern string) Driver {
	return func(ctx context.Context, c *Client) []Answer {
		return Discover(fmt.Sprintf(pattern, c.Number))(ctx, c)
	}
}

// HitAndRun starts a clone and hangs up after stay without having read the
// answer; the server's work goes on. It counts as one without an answer.
func HitAndRun(repo, tip string, stay time.Duration) Driver {
	return func(ctx context.Context, c *Client) []Answer {
		ctx, cancel := context.WithTimeout(ctx, stay)
		defer cancel()
		return []Answer{fetch(ctx, c, repo, tip, "")}
	}
}

// BasicHeader is one Authorization line.
func BasicHeader(user, password string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)) + "\r\n"
}

func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
