package keystore

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/rpc/identity"
)

// Of returns the store of an agent's keyring, as its configuration says.
func Of(cfg config.Config) keyring.Store { return OfKind(cfg.Keyring.Kind, cfg) }

// OfKind returns the store of an agent's keyring, as it is if that is of a kind.
func OfKind(kind string, cfg config.Config) keyring.Store {
	o := keyring.Outside{Credentials: os.Getenv("CREDENTIALS_DIRECTORY")}
	switch t, p := cfg.Keyring.Transit, cfg.Keyring.Program; {
	case kind == keyring.KindTransit && t.Address != "":
		o.Wrapper = NewTransit(t)
	case kind == keyring.KindProgram && p.Path != "":
		o.Wrapper = NewProgram(p)
	}
	return keyring.Of(kind, cfg.KeyringDir(), o)
}

// The times between two tries to have a service or a program decrypt a keyring's local key.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// Await returns the store of an agent's keyring once that can be read, and nil if ctx ends before. A keyring that is locked is waited for:
// this agent then has its data directory and nothing else. sealed is called with the reason, and with "" once it is open.
func Await(ctx context.Context, cfg config.Config, log *slog.Logger, sealed func(why string)) (keyring.Store, error) {
	store := Of(cfg)
	_, err := store.Load()
	if !errors.Is(err, keyring.ErrSealed) && !errors.Is(err, keyring.ErrAway) {
		return store, err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, err
	}
	lock, err2 := identity.LockDir(cfg.DataDir) // no other agent waits for the same
	if err2 != nil {
		return nil, err2
	}
	defer lock.Release()
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		switch {
		case err == nil:
			log.Info("the keyring is open; this agent starts")
			sealed("")
			return store, nil
		case errors.Is(err, keyring.ErrSealed):
			log.Warn("this agent is sealed: it neither votes nor serves until it gets the passphrase of its keyring; run coopr-agent unlock",
				"data_dir", cfg.DataDir)
			sealed("the keyring is locked: run coopr-agent unlock")
			if err := await(ctx, cfg.DataDir, store.(*keyring.Passphrase), log); err != nil {
				return nil, err
			}
		case errors.Is(err, keyring.ErrAway):
			log.Warn("this agent is sealed: it neither votes nor serves until its keyring is decrypted", "again_in", pause, "error", err)
			sealed("the keyring waits for the " + awaited(cfg.Keyring.Kind) + " that decrypts it")
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		default:
			return nil, err
		}
		if ctx.Err() == nil {
			_, err = store.Load()
		}
	}
	return nil, nil
}

// awaited names what decrypts a keyring of a kind.
func awaited(kind string) string {
	if kind == keyring.KindProgram {
		return "program"
	}
	return "service"
}
