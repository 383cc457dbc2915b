package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestIDStaysTheSame(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadOrCreateID(dir)
	if err != nil || !validID(first) {
		t.Fatal(first, err)
	}
	if again, err := LoadOrCreateID(dir); again != first || err != nil {
		t.Error(again, err)
	}
	if other, _ := LoadOrCreateID(t.TempDir()); other == first {
		t.Error("two directories, one id")
	}
	info, _ := os.Stat(filepath.Join(dir, "agent-id"))
	if info.Mode().Perm() != 0o600 {
		t.Error(info.Mode())
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Error("something else was left behind:", entries)
	}
}

func TestCorruptIDIsNotReplaced(t *testing.T) {
	for _, content := range []string{"", "not a uuid\n", oneID + oneID, oneID[:35]} {
		dir := t.TempDir()
		path := filepath.Join(dir, "agent-id")
		os.WriteFile(path, []byte(content), 0o600)
		if id, err := LoadOrCreateID(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %s, %v", content, id, err)
		}
		if now, _ := os.ReadFile(path); string(now) != content {
			t.Error("the file was changed")
		}
	}
}

func TestSecretFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadSecret(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	s := mustSecret(t)
	if err := SaveSecret(dir, s); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "mesh-secret")
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Error(info.Mode())
	}
	if got, err := LoadSecret(dir); got != s || err != nil {
		t.Error(err)
	}
	os.Chmod(path, 0o640)
	if _, err := LoadSecret(dir); err == nil || !strings.Contains(err.Error(), "0640") {
		t.Error("a file others can read:", err)
	}
	os.WriteFile(path, []byte("coopr-join-1-abc"), 0o600)
	os.Chmod(path, 0o600)
	if _, err := LoadSecret(dir); !errors.Is(err, ErrTokenTruncated) {
		t.Error(err)
	}
	os.WriteFile(path, nil, 0o600)
	if _, err := LoadSecret(dir); !errors.Is(err, ErrTokenMalformed) {
		t.Error(err)
	}
}

func TestLockIsExclusive(t *testing.T) {
	dir := t.TempDir()
	lock, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockDir(dir)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Error(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	again, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
}

// The lock holds between processes. It ends with the process that holds it, even if that is killed.
func TestLockBetweenProcesses(t *testing.T) {
	if dir := os.Getenv("IDENTITY_TEST_LOCK"); dir != "" {
		if _, err := LockDir(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		time.Sleep(time.Hour) // until killed
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockBetweenProcesses$")
	cmd.Env = append(os.Environ(), "IDENTITY_TEST_LOCK="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	buf := make([]byte, 6)
	if _, err := out.Read(buf); err != nil || string(buf) != "locked" {
		t.Fatalf("%q %v", buf, err)
	}
	if _, err := LockDir(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
		t.Error(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	lock, err := LockDir(dir)
	if err != nil {
		t.Fatal("the lock outlives its process:", err)
	}
	lock.Release()
}
