package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/coopr/coopr/agent"
	"github.com/coopr/coopr/agent/config"
)

// devFile is the file by which the command line finds a dev agent.
type devFile struct {
	Addr  string `json:"addr"`
	Token string `json:"token"`
	PID   int    `json:"pid"`
}

// announce prints how to reach a dev agent and writes it to the files that the command
// line reads: one in the data directory, and one in the user's configuration, unless
// another dev agent owns that one. The returned function removes the files.
func announce(cfg config.Config, a *agent.Agent) (func(), error) {
	d := devFile{Addr: "http://" + a.Addr(), Token: a.Token(), PID: os.Getpid()}
	body, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	files := []string{filepath.Join(cfg.DataDir, "dev.json")}
	if dir, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(dir, "coopr", "dev.json"))
	}
	var written []string
	for i, f := range files {
		if i > 0 && owned(f) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(f), 0o700); err != nil {
			continue // an agent runs without a writable home directory
		}
		if err := os.WriteFile(f, body, 0o600); err != nil {
			if i == 0 && !errors.Is(err, syscall.EROFS) {
				return nil, err
			}
			continue
		}
		written = append(written, f)
	}
	fmt.Fprintf(os.Stdout, "Coopr agent in dev mode: everything is on loopback, and there are no certificates.\n\n  API      %s\n"+
		"  token    %s\n  console  %s/\n\nThe coopr command finds both by itself. From another shell:\n\n  export COOPR_ADDR=%s "+
		"COOPR_TOKEN=%s\n\n", d.Addr, d.Token,
		d.Addr, d.Addr, d.Token)
	return func() {
		for _, f := range written {
			if b, err := os.ReadFile(f); err == nil && string(b) == string(body) {
				_ = os.Remove(f)
			}
		}
	}, nil
}

// owned reports whether another dev agent that still runs has written the file.
func owned(file string) bool {
	b, err := os.ReadFile(file)
	var d devFile
	if err != nil || json.Unmarshal(b, &d) != nil || d.PID == 0 || d.PID == os.Getpid() {
		return false
	}
	_, err = os.Stat(filepath.Join("/proc", fmt.Sprint(d.PID)))
	return err == nil
}
