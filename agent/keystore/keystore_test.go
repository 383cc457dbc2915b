package keystore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/rpc/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const horse = "correct horse battery"

// locked returns the configuration of an agent whose keyring has a key and a passphrase.
func locked(t *testing.T) config.Config {
	t.Helper()
	cfg := config.Config{DataDir: filepath.Join(t.TempDir(), strings.Repeat("long", 30), "data"), Keyring: config.Keyring{Kind: keyring.KindPassphrase}}
	p := Of(cfg).(*keyring.Passphrase)
	key := keyring.NewKey(1)
	must(t, os.MkdirAll(cfg.DataDir, 0o700))
	must(t, p.Change([]byte(horse)))
	must(t, p.Save(keyring.Set{Active: 1, Keys: []keyring.Key{key}}))
	return cfg
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// starting is an agent that waits for its keyring.
type starting struct {
	said  chan string // reasons, and "" when it is open
	ended chan struct{}
	store keyring.Store
	err   error
	log   safeBuffer
	stop  context.CancelFunc
}

// safeBuffer is a buffer for several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func start(t *testing.T, cfg config.Config) *starting {
	ctx, stop := context.WithCancel(t.Context())
	s := &starting{said: make(chan string, 100), ended: make(chan struct{}), stop: stop}
	go func() {
		defer close(s.ended)
		s.store, s.err = Await(ctx, cfg, slog.New(slog.NewTextHandler(&s.log, nil)), func(why string) { s.said <- why })
	}()
	t.Cleanup(func() { stop(); <-s.ended })
	return s
}

// listens waits until the agent of a data directory takes passphrases.
func listens(t *testing.T, s *starting, cfg config.Config) {
	t.Helper()
	for Waits(cfg.DataDir) != nil {
		select {
		case <-s.ended:
			t.Fatal("the agent does not wait:", s.err)
		default:
		}
	}
}

// TestUnlock starts an agent whose keyring is locked. It waits, has its data directory meanwhile, and goes on with the right passphrase only.
func TestUnlock(t *testing.T) {
	cfg := locked(t)
	must(t, os.WriteFile(filepath.Join(cfg.DataDir, socketName), nil, 0o600)) // that of an agent that was killed
	if err := Unlock(t.Context(), cfg.DataDir, []byte(horse)); !errors.Is(err, ErrNotSealed) {
		t.Error("without an agent:", err)
	}
	s := start(t, cfg)
	listens(t, s, cfg)
	if why := <-s.said; !strings.Contains(why, "coopr-agent unlock") {
		t.Error("it says", why)
	}
	if info, err := os.Stat(filepath.Join(cfg.DataDir, socketName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Error("the socket:", info, err)
	}
	if _, err := identity.LockDir(cfg.DataDir); !errors.Is(err, identity.ErrLocked) {
		t.Error("another agent can have the data directory:", err)
	}
	for _, wrong := range []string{"", "wrong", horse + "\n"} {
		if err := Unlock(t.Context(), cfg.DataDir, []byte(wrong)); !errors.Is(err, keyring.ErrPassphrase) {
			t.Errorf("with %q: %v", wrong, err)
		}
	}
	if err := Unlock(t.Context(), cfg.DataDir, bytes.Repeat([]byte("x"), keyring.MaxPassphrase+1)); err == nil {
		t.Error("a passphrase without an end was read")
	}
	var all sync.WaitGroup
	for range 3 { // one of them opens it; the others come too late or are answered so, too
		all.Go(func() {
			if err := Unlock(t.Context(), cfg.DataDir, []byte(horse)); err != nil {
				t.Log(err)
			}
		})
	}
	<-s.ended
	all.Wait()
	if s.err != nil || <-s.said != "" {
		t.Fatal("it does not go on:", s.err)
	}
	if set, err := s.store.Load(); err != nil || len(set.Keys) != 1 {
		t.Error(set, err)
	}
	if !errors.Is(Waits(cfg.DataDir), ErrNotSealed) {
		t.Error("the socket is still there")
	}
	if log := s.log.String(); !strings.Contains(log, "sealed") || !strings.Contains(log, "wrong passphrase") || strings.Contains(log, horse) {
		t.Error("the log:", log)
	}
	lock, err := identity.LockDir(cfg.DataDir)
	must(t, err)
	must(t, lock.Release())
}

// TestStopSealed stops an agent that waits for its passphrase.
func TestStopSealed(t *testing.T) {
	cfg := locked(t)
	s := start(t, cfg)
	listens(t, s, cfg)
	s.stop()
	<-s.ended
	if s.store != nil || s.err != nil || !errors.Is(Waits(cfg.DataDir), ErrNotSealed) {
		t.Error(s.store, s.err)
	}
}

// TestAwaitOthers opens keyrings that nobody has to wait for, and refuses those that cannot be opened.
func TestAwaitOthers(t *testing.T) {
	for kind, good := range map[string]bool{
		"": true, keyring.KindFile: true, keyring.KindPassphrase: true, keyring.KindSystemd: false, keyring.KindTransit: false,
	} {
		t.Setenv("CREDENTIALS_DIRECTORY", "")
		s := start(t, config.Config{DataDir: filepath.Join(t.TempDir(), "data"), Keyring: config.Keyring{Kind: kind}})
		if <-s.ended; (s.err == nil) != good || len(s.said) > 0 {
			t.Errorf("%q: %v", kind, s.err)
		}
	}
}
