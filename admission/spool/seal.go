package spool

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// sealer encrypts what a delivery carries beside its body that is a
// credential by itself, with AES-256-GCM under a random key of this spool.
// The key lies in a file of its own (0600), so that a copy of the log, an
// export or a listing holds no secret; who can read both files can read the
// credentials. With a lost key a delivery is set aside: its body is there, its
// credentials are not.
type sealer struct{ aead cipher.AEAD }

const keySize = 32

func newSealer(key []byte) (*sealer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &sealer{aead}, nil
}

// damagedKey is added to the name of a key file that cannot be used.
const damagedKey = ".damaged"

// openSealer reads the key file, making it when missing. A damaged one that
// the spool made itself (own) is set aside for an operator and a new one made;
// one that the configuration names is an error.
func openSealer(d Disk, name string, own bool) (s *sealer, damaged bool, err error) {
	text, err := readSmall(d, name, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		s, err = makeKey(d, name)
		return s, false, err
	}
	if err != nil {
		return nil, false, diskError("read key", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	switch {
	case err == nil && len(key) == keySize:
		s, err = newSealer(key)
		return s, false, err
	case !own:
		return nil, false, fmt.Errorf("spool: the key file does not hold %d bytes in hexadecimal", keySize)
	}
	if err := d.Rename(name, name+damagedKey); err != nil {
		return nil, true, diskError("rename key", err)
	}
	s, err = makeKey(d, name)
	return s, true, err
}

func makeKey(d Disk, name string) (*sealer, error) {
	var key [keySize]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, err
	}
	if err := writeSmall(d, name, []byte(hex.EncodeToString(key[:])+"\n")); err != nil {
		return nil, err
	}
	return newSealer(key[:])
}

// seal encrypts the secrets for one hook: under the name of another, and so for
// another receiver, they cannot be opened.
func (s *sealer) seal(what *secrets, hook string) ([]byte, error) {
	text, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(text)+s.aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return s.aead.Seal(nonce, nonce, text, []byte(hook)), nil
}

// open is the reverse of seal; nil secrets for nil sealed.
func (s *sealer) open(sealed []byte, hook string) (*secrets, error) {
	what := &secrets{}
	if len(sealed) == 0 {
		return what, nil
	}
	n := s.aead.NonceSize()
	if len(sealed) < n {
		return nil, ErrNoKey
	}
	text, err := s.aead.Open(nil, sealed[:n], sealed[n:], []byte(hook))
	if err != nil {
		return nil, ErrNoKey
	}
	if err := json.Unmarshal(text, what); err != nil {
		return nil, ErrNoKey
	}
	return what, nil
}
