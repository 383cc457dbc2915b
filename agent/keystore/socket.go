package keystore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
)

// socketName is the socket of a sealed agent in its data directory. Only the agent's user and root can open it.
const socketName = "unlock.sock"

// unlockPath is the path of the only request at the socket. Its body is the passphrase.
const unlockPath = "/unlock"

// ErrNotSealed means that no agent waits for a passphrase.
var ErrNotSealed = errors.New("no agent waits for a passphrase here: it does not run, or it is open already")

// short calls use with a path of the socket of a data directory that has room in an address of a socket, whatever that of the folder is.
func short(dataDir string, use func(path string) error) error {
	d, err := os.Open(dataDir)
	if err != nil {
		return err
	}
	defer d.Close()
	return use("/proc/self/fd/" + strconv.Itoa(int(d.Fd())) + "/" + socketName)
}

// listen opens the socket of a sealed agent. The caller has locked the data directory, so that no other agent has it open.
func listen(dataDir string) (l *net.UnixListener, err error) {
	path := filepath.Join(dataDir, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // that of an agent that was killed
		return nil, err
	}
	err = short(dataDir, func(path string) error {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // its path is that of a descriptor which is closed
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// await returns when somebody has given the passphrase of a keyring, or when ctx ends.
func await(ctx context.Context, dataDir string, store *keyring.Passphrase, log *slog.Logger) error {
	l, err := listen(dataDir)
	if err != nil {
		return fmt.Errorf("wait for the passphrase of the keyring: %w", err)
	}
	defer os.Remove(filepath.Join(dataDir, socketName))
	opened := make(chan struct{})
	server := &http.Server{
		Handler:           unlocker(store, log, func() { close(opened) }),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("wait for the passphrase of the keyring: %w", err)
	case <-ctx.Done():
		err = server.Close()
	case <-opened:
		err = server.Shutdown(ctx) // the answer is still under way
	}
	<-ended
	return err
}

// unlocker handles the requests at the socket. Passphrases are tried one at a time, and none is once one was right; opened is called then.
func unlocker(store *keyring.Passphrase, log *slog.Logger, opened func()) http.Handler {
	turn := make(chan struct{}, 1)
	turn <- struct{}{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+unlockPath, func(w http.ResponseWriter, r *http.Request) {
		phrase, err := io.ReadAll(http.MaxBytesReader(w, r.Body, keyring.MaxPassphrase))
		if err != nil {
			http.Error(w, "the passphrase could not be read, or is too long", http.StatusBadRequest)
			return
		}
		select {
		case _, ok := <-turn:
			if !ok {
				w.WriteHeader(http.StatusNoContent) // it is open already
				return
			}
		case <-r.Context().Done():
			return
		}
		switch err := store.Unlock(phrase); {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
			close(turn)
			opened()
			return
		case errors.Is(err, keyring.ErrPassphrase):
			log.Warn("a wrong passphrase was given for the keyring")
			http.Error(w, err.Error(), http.StatusForbidden)
		default:
			log.Error("the keyring could not be unlocked", "error", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		turn <- struct{}{}
	})
	return mux
}

// Unlock sends a passphrase to the sealed agent of a data directory. It fails with ErrNotSealed if no agent waits for one, and with
// keyring.ErrPassphrase if it is wrong.
func Unlock(ctx context.Context, dataDir string, passphrase []byte) error {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
			err = short(dataDir, func(path string) error {
				conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
				return err
			})
			return conn, err
		},
		DisableKeepAlives: true,
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+unlockPath, bytes.NewReader(passphrase))
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return notSealed(dataDir, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	switch {
	case answer.StatusCode == http.StatusNoContent:
		return nil
	case answer.StatusCode == http.StatusForbidden:
		return keyring.ErrPassphrase
	case err != nil:
		return err
	}
	return fmt.Errorf("the agent answers: %s", bytes.TrimSpace(text))
}

// Waits returns nil if the agent of a data directory waits for a passphrase, and ErrNotSealed if it does not.
func Waits(dataDir string) error {
	return short(dataDir, func(path string) error {
		conn, err := net.Dial("unix", path)
		if err != nil {
			return notSealed(dataDir, err)
		}
		return conn.Close()
	})
}

// notSealed returns ErrNotSealed in place of an error that says that nobody listens at the socket.
func notSealed(dataDir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s: %w", dataDir, ErrNotSealed)
	}
	return err
}
