package logout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Bounds of a key set.
const (
	maxKeySet      = 256 << 10 // bytes of the document
	maxKeys        = 64        // used; the rest is ignored
	maxTries       = 8         // keys tried for a token without a key id
	fetchTimeout   = 5 * time.Second
	minInterval    = 10 * time.Second
	DefaultRefresh = time.Minute // between two fetches
	keySetMaxAge   = time.Hour   // after which use starts a fetch
)

// KeySource says where an issuer's keys are.
type KeySource struct {
	// Issuer is the issuer's URL; its discovery document names the keys when
	// URL is empty.
	Issuer string
	// URL of the key set; empty uses discovery.
	URL string
	// Interval between two fetches, whatever the reason; 0 = one minute, at
	// least ten seconds.
	Interval time.Duration
	// Fetch reads a document of at most max bytes; nil uses HTTP without
	// redirects and without proxy settings of the environment, 5 s.
	Fetch func(ctx context.Context, url string, max int64) ([]byte, error)
}

// Keys is a cached key set of one issuer. Nothing is fetched before the first
// token that needs it. A failed fetch keeps the old keys. Safe for concurrent
// use.
//
// mu protects the fields below it and is never held during a fetch.
type Keys struct {
	source KeySource

	mu       sync.Mutex
	set      []jose.JSONWebKey
	fetched  time.Time     // last success
	tried    time.Time     // last attempt
	running  chan struct{} // closed when the fetch in progress ends; nil = none
	fetches  int64
	failures int64
}

// NewKeys returns an empty cache.
func NewKeys(s KeySource) (*Keys, error) {
	if s.Interval == 0 {
		s.Interval = DefaultRefresh
	}
	if s.Interval < minInterval {
		return nil, fmt.Errorf("key refresh interval %s: at least %s", s.Interval, minInterval)
	}
	if s.Issuer == "" && s.URL == "" {
		return nil, errors.New("key source: need an issuer or a URL")
	}
	if s.Fetch == nil {
		s.Fetch = fetchHTTP
	}
	return &Keys{source: s}, nil
}

// Fetches returns how many fetches were started and how many failed.
func (k *Keys) Fetches() (started, failed int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fetches, k.failures
}

// Verify checks the token's signature with the issuer's keys. An unknown key
// id waits for at most one fetch per interval. It returns nil, BadSignature or
// NoKeys. Must not be called when the token is not Verifiable.
func (t *Token) Verify(ctx context.Context, now time.Time) *Refusal {
	keys, have := t.keys.find(t.kid, now)
	if len(keys) == 0 {
		t.keys.refresh(ctx, now)
		keys, have = t.keys.find(t.kid, now)
	}
	if !have {
		return refuse(NoKeys)
	}
	sig, err := jose.ParseSignedCompact(t.compact, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(t.algorithm)})
	if err != nil {
		return refuse(BadSignature)
	}
	for i := range keys {
		if keys[i].Algorithm != "" && keys[i].Algorithm != t.algorithm {
			continue
		}
		if _, err := sig.Verify(keys[i].Key); err == nil {
			return nil
		}
	}
	return refuse(BadSignature)
}

// find returns the keys of that id, or, without one, the first few. have says
// whether the set was ever fetched. An old set starts a fetch on the side.
func (k *Keys) find(kid string, now time.Time) (found []jose.JSONWebKey, have bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.fetched.IsZero() && now.Sub(k.fetched) > keySetMaxAge {
		k.startLocked(now)
	}
	for i := range k.set {
		if (kid == "" || k.set[i].KeyID == kid) && len(found) < maxTries {
			found = append(found, k.set[i])
		}
	}
	return found, !k.fetched.IsZero()
}

// refresh waits for a fetch that runs already or may start now, and returns at
// once when the interval forbids one.
func (k *Keys) refresh(ctx context.Context, now time.Time) {
	k.mu.Lock()
	running := k.startLocked(now)
	k.mu.Unlock()
	if running == nil {
		return
	}
	select {
	case <-running:
	case <-ctx.Done():
	}
}

// startLocked starts a fetch unless one runs or the interval is not over, and
// returns the channel of the running one. The caller holds mu. The fetch does
// not depend on the request that caused it.
func (k *Keys) startLocked(now time.Time) chan struct{} {
	if k.running != nil {
		return k.running
	}
	if !k.tried.IsZero() && now.Sub(k.tried) < k.source.Interval {
		return nil
	}
	k.tried = now
	k.fetches++
	done := make(chan struct{})
	k.running = done
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		set, err := k.fetch(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.running = nil
		if err != nil {
			k.failures++
			return
		}
		k.set, k.fetched = set, now
	}()
	return done
}

func (k *Keys) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	from := k.source.URL
	if from == "" {
		raw, err := k.source.Fetch(ctx, strings.TrimSuffix(k.source.Issuer, "/")+"/.well-known/openid-configuration", maxKeySet)
		if err != nil {
			return nil, err
		}
		var d struct {
			Issuer string `json:"issuer"`
			JWKS   string `json:"jwks_uri"`
		}
		if err := json.Unmarshal(raw, &d); err != nil || d.Issuer != k.source.Issuer || d.JWKS == "" {
			return nil, errors.New("discovery document: not this issuer's, or without jwks_uri")
		}
		from = d.JWKS
	}
	raw, err := k.source.Fetch(ctx, from, maxKeySet)
	if err != nil {
		return nil, err
	}
	return parseKeys(raw)
}

// parseKeys keeps the public signature keys of a set and ignores the others.
func parseKeys(raw []byte) ([]jose.JSONWebKey, error) {
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, errors.New("key set: not a JSON object with keys")
	}
	var set []jose.JSONWebKey
	for _, one := range doc.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(one) != nil || !key.Valid() || !key.IsPublic() || (key.Use != "" && key.Use != "sig") {
			continue
		}
		if set = append(set, key); len(set) == maxKeys {
			break
		}
	}
	if len(set) == 0 {
		return nil, errors.New("key set: no usable key")
	}
	return set, nil
}

var fetcher = &http.Client{
	Timeout: fetchTimeout,
	Transport: &http.Transport{
		Proxy: nil, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: fetchTimeout, ResponseHeaderTimeout: fetchTimeout, ForceAttemptHTTP2: true,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func fetchHTTP(ctx context.Context, url string, max int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	res, err := fetcher.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", res.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, max+1))
	if err == nil && int64(len(raw)) > max {
		err = fmt.Errorf("more than %d bytes", max)
	}
	return raw, err
}
