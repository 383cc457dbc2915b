package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// serve serves on addr until ctx is done. Then it lets the requests in flight finish, for at most
// grace.
func serve(ctx context.Context, log *slog.Logger, addr string, grace time.Duration, h http.Handler) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("serve on %s: %w", addr, err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	log.Info("ready", "addr", l.Addr().String())
	select {
	case err := <-done:
		return fmt.Errorf("serve on %s: %w", addr, err)
	case <-ctx.Done():
	}
	log.Info("stopping")
	end, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err = srv.Shutdown(end)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests cut off", "after", grace)
		err = srv.Close()
	}
	<-done
	return err
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // fails only if the client has gone
}

// writeError answers with a status and {"error": …}.
func writeError(w http.ResponseWriter, status int, format string, a ...any) {
	writeJSON(w, status, map[string]string{"error": fmt.Sprintf(format, a...)})
}
