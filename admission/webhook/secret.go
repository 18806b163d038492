package webhook

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Bounds of secrets.
const (
	MaxSecrets    = 8    // active at once, for rotation
	maxSecretSize = 4096 // bytes of one
	shortSecret   = 16   // fewer bytes are warned about
)

// Secrets is the set of active secrets of one hook. The zero value holds
// none. It never prints, marshals or logs what it holds.
type Secrets struct{ keys keyring }

const basicPrefix = "Basic "

// keyring hands out keys. A function prints as an address under every verb;
// a pointer to keys does not: fmt follows it when the verb does not fit.
type keyring func() [][]byte

func newKeyring(keys [][]byte) keyring { return func() [][]byte { return keys } }

func (k keyring) values() [][]byte {
	if k == nil {
		return nil
	}
	return k()
}

// NewSecrets returns a set of the given secrets. Empty ones, more than
// [MaxSecrets] or more than 4096 bytes each are an error.
func NewSecrets(values ...string) (Secrets, error) {
	if len(values) > MaxSecrets {
		return Secrets{}, fmt.Errorf("%d secrets: at most %d", len(values), MaxSecrets)
	}
	var keys [][]byte
	for i, v := range values {
		if v == "" || len(v) > maxSecretSize {
			return Secrets{}, fmt.Errorf("secret %d: want 1 to %d bytes", i+1, maxSecretSize)
		}
		keys = append(keys, []byte(v))
	}
	return Secrets{keys: newKeyring(keys)}, nil
}

// Len returns how many secrets are active.
func (s Secrets) Len() int { return len(s.values()) }

func (s Secrets) values() [][]byte { return s.keys.values() }

// Format writes a fixed text for every verb.
func (s Secrets) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[secrets]") }

// MarshalText writes a fixed text.
func (s Secrets) MarshalText() ([]byte, error) { return []byte("[secrets]"), nil }

// Warning is something about a secret file that an operator should change.
type Warning struct {
	Path string
	Text string
}

// String returns the warning for a log line; it holds nothing of the file.
func (w Warning) String() string { return fmt.Sprintf("secret file %q: %s", w.Path, w.Text) }

// LoadSecrets reads one secret from each file: the whole content without one
// line break at its end. It is read anew at every load of the configuration
// and kept in memory only. All mistakes are reported at once; a file that
// others may read and a short secret are warnings.
func LoadSecrets(paths []string) (Secrets, []Warning, error) {
	var (
		values   []string
		warnings []Warning
		mistakes []error
	)
	for _, p := range paths {
		v, warns, err := loadSecret(p)
		warnings = append(warnings, warns...)
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		values = append(values, v)
	}
	if err := errors.Join(mistakes...); err != nil {
		return Secrets{}, warnings, err
	}
	s, err := NewSecrets(values...)
	return s, warnings, err
}

func loadSecret(path string) (string, []Warning, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("secret file: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", nil, fmt.Errorf("secret file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", nil, fmt.Errorf("secret file %q: not a regular file", path)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxSecretSize+3))
	if err != nil {
		return "", nil, fmt.Errorf("secret file: %w", err)
	}
	v, ok := bytes.CutSuffix(raw, []byte("\n"))
	if ok {
		v = bytes.TrimSuffix(v, []byte("\r"))
	}
	if len(v) == 0 || len(v) > maxSecretSize {
		return "", nil, fmt.Errorf("secret file %q: want 1 to %d bytes", path, maxSecretSize)
	}
	var warnings []Warning
	if info.Mode().Perm()&0o004 != 0 {
		warnings = append(warnings, Warning{path, "everybody on this machine can read it (chmod o-r)"})
	}
	if len(v) < shortSecret {
		warnings = append(warnings, Warning{path, fmt.Sprintf("shorter than %d bytes", shortSecret)})
	}
	if strings.ContainsAny(string(v), "\r\n") {
		warnings = append(warnings, Warning{path, "holds a line break; one file is one secret"})
	}
	return string(v), warnings, nil
}

// Credential is the header whose value is the secret itself, with the value of
// the first secret: whoever keeps deliveries leaves it out and adds it again.
// Both are "" when the sender of the profile only signs.
func (s Secrets) Credential(p *Profile) (header, value string) {
	values := s.values()
	if !p.BeforeBody() || len(values) == 0 {
		return "", ""
	}
	if p.Auth == Basic {
		return p.canonical.name, basicPrefix + base64.StdEncoding.EncodeToString(values[0])
	}
	return p.canonical.name, p.prefix + string(values[0])
}
