package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/agent/keystore"
	"github.com/coopr/coopr/agent/worker"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/rpc/identity"
)

const asUser = "run this command as the user of the agent: runuser -u coopr -- coopr-agent doctor"

// data checks the data directory, and whether the agent runs.
func (e *exam) data() {
	dir := e.cfg.DataDir
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.warn("data_dir", "create it: install -d -m 0700 -o coopr -g coopr "+dir, "%s does not exist yet", dir)
		return
	case err != nil:
		e.fail("data_dir", asUser, "%v", err)
		return
	case !info.IsDir():
		e.fail("data_dir", "set data_dir to a folder", "%s is not a folder", dir)
		return
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		e.fail("data_dir", "chmod 700 "+dir, "others may reach %s, which has mode %04o", dir, mode)
		return
	}
	raw, err := os.ReadFile(filepath.Join(dir, "agent-id"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.ok("data_dir", "%s is ready for an agent that has not run yet", dir)
		return
	case err != nil:
		e.fail("data_dir", asUser, "%v", err)
		return
	}
	if e.id = strings.TrimSpace(string(raw)); !identity.IsID(e.id) {
		e.fail("data_dir", "restore the whole data_dir from a backup, or join as a new agent", "the file agent-id is damaged")
		e.id = ""
		return
	}
	lock, err := identity.LockDir(dir)
	switch {
	case inUse(err):
		e.running = true
		e.ok("data_dir", "%s belongs to agent %s, which runs", dir, e.id)
	case err != nil:
		e.fail("data_dir", asUser, "%v", err)
	default:
		if err := lock.Release(); err != nil {
			e.fail("data_dir", "", "%v", err)
			return
		}
		e.ok("data_dir", "%s belongs to agent %s, which does not run", dir, e.id)
	}
}

// identity checks that the agent belongs to a mesh, or can join one.
func (e *exam) identity() {
	if e.cfg.Dev {
		e.ok("identity", "an agent in dev mode needs none")
		return
	}
	m, err := identity.LoadMembership(e.cfg.DataDir)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := identity.LoadSecret(e.cfg.DataDir); err == nil {
			e.ok("identity", "the agent has the secret of an older mesh")
			return
		}
		if text, err := e.cfg.JoinText(); err != nil || text != "" {
			if err == nil {
				err = identity.CheckToken(text)
			}
			if err != nil {
				e.fail("identity", "make another token: coopr token join", "the join token cannot be used: %v", err)
				return
			}
			e.ok("identity", "the agent joins a mesh with its token")
			return
		}
		e.fail("identity", "coopr-agent init for the first agent of a mesh; join_token_file with a token of coopr token join for others",
			"the agent belongs to no mesh, and has no token to join one")
		return
	}
	if err != nil {
		e.fail("identity", "chmod 600 the file, or restore it from a backup", "%v", err)
		return
	}
	if ring, err := keyring.Open(keystore.Of(e.cfg)); err == nil { // else the check keyring says why
		if err := m.Unseal(ring); err != nil {
			e.fail("identity", "see docs/operations.md, The keyring", "%v", err)
			return
		}
	}
	e.membership = m
	if m.Mesh == "" && m.Birth != nil {
		e.ok("identity", "the agent is the first one of a new mesh")
		return
	}
	c, err := x509.ParseCertificate(m.Certificate)
	if err != nil {
		e.fail("identity", "restore the file identity of data_dir from a backup, or join with a new token",
			"the certificate cannot be read: %v", err)
		return
	}
	switch over := e.now.Sub(c.NotAfter); {
	case over > gone:
		e.fail("identity", "remove the agent (coopr leave), move data_dir away and join with a new token",
			"the certificate ended on %s, too long ago to be renewed", c.NotAfter.Format(time.DateOnly))
	case over > 0:
		e.warn("identity", "start the agent; if it runs, see that it reaches a voter", "the certificate ended at %s",
			c.NotAfter.Format(time.RFC3339))
	case e.now.Before(c.NotBefore.Add(-time.Minute)):
		e.fail("identity", "set the clock of this machine", "the certificate begins in the future, at %s: the clock of this machine is behind",
			c.NotBefore.Format(time.RFC3339))
	default:
		e.ok("identity", "the agent is a %s of mesh %s; its certificate is renewed before %s", m.Role, m.Mesh, c.NotAfter.Format(time.RFC3339))
	}
}

// certificate checks the certificate of the API that the operator provides.
func (e *exam) certificate() {
	file := e.cfg.HTTP.TLSCert
	if file == "" {
		e.ok("certificate", "the API uses a certificate of the mesh")
		return
	}
	pair, err := tls.LoadX509KeyPair(file, e.cfg.HTTP.TLSKey)
	if err != nil {
		e.fail("certificate", "correct http.tls_cert and http.tls_key", "%v", err)
		return
	}
	switch left := pair.Leaf.NotAfter.Sub(e.now); {
	case left <= 0:
		e.fail("certificate", "replace it, and reload the agent", "%s ended on %s", file, pair.Leaf.NotAfter.Format(time.DateOnly))
	case left < soon:
		e.warn("certificate", "replace it, and reload the agent", "%s ends on %s", file, pair.Leaf.NotAfter.Format(time.DateOnly))
	default:
		e.ok("certificate", "%s is valid until %s", file, pair.Leaf.NotAfter.Format(time.DateOnly))
	}
}

// keyring checks that the keys of the mesh can be read, and by nobody else.
func (e *exam) keyring() {
	dir := e.cfg.KeyringDir()
	set, err := keystore.Of(e.cfg).Load()
	switch {
	case errors.Is(err, keyring.ErrSealed) && keystore.Waits(e.cfg.DataDir) == nil:
		e.fail("keyring", "coopr-agent unlock", "the agent is sealed: it waits for the passphrase of the keyring")
	case errors.Is(err, keyring.ErrSealed):
		e.ok("keyring", "%s is locked with a passphrase", dir)
	case errors.Is(err, keyring.ErrAway):
		e.warn("keyring", "see that what keyring."+e.cfg.Keyring.Kind+" names works; an agent that starts waits for it", "%v", err)
	case errors.Is(err, keyring.ErrLocked) && slices.Contains([]string{keyring.KindTransit, keyring.KindProgram}, e.cfg.Keyring.Kind):
		e.fail("keyring", "correct keyring."+e.cfg.Keyring.Kind+", or the rights of this machine there", "%v", err)
	case errors.Is(err, keyring.ErrLocked):
		e.warn("keyring", "of the kind systemd-creds, examine it from within the agent's unit, which has the credential", "%v", err)
	case errors.Is(err, keyring.ErrKind):
		e.fail("keyring", "set keyring.kind to the kind of the file, or run coopr-agent keyring convert", "%v", err)
	case errors.Is(err, fs.ErrPermission):
		e.fail("keyring", asUser, "%v", err)
	case errors.Is(err, keyring.ErrExposed):
		e.fail("keyring", "close the folder, and have the keys rotated if somebody may have read them", "%v", err)
	case err != nil:
		e.fail("keyring", "restore the file keys from your copy, or remove it: a voter gets the keys from the others", "%v", err)
	case len(set.Keys) == 0:
		e.ok("keyring", "%s has no keys; a voter gets them from the mesh", dir)
	default:
		e.ok("keyring", "%s has the keys of the mesh", dir)
	}
}

// disk checks the space of the data directory's file system, and how long the disk takes to keep a write.
func (e *exam) disk() {
	dir := e.cfg.DataDir
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		e.warn("disk", "create data_dir", "%s: %v", dir, err)
		return
	}
	free := st.Bavail * uint64(st.Bsize)
	took, err := syncTime(dir)
	switch {
	case errors.Is(err, fs.ErrPermission):
		e.fail("disk", asUser, "%v", err)
	case err != nil:
		e.fail("disk", "make room, or repair the file system", "%s cannot be written: %v", dir, err)
	case free < leastFree:
		e.fail("disk", "make room, or move data_dir to a larger disk", "%d MiB are free at %s", free>>20, dir)
	case took >= hangingSync:
		e.fail("disk", "use a local SSD: writes that take seconds cost a voter its place", "a write takes %s to be on the disk", took)
	case took >= slowSync:
		e.warn("disk", "use a faster disk, or raise raft.multiplier", "a write takes %s to be on the disk", took)
	default:
		e.ok("disk", "%d MiB are free; a write takes %s to be on the disk", free>>20, took)
	}
}

// syncTime returns the median time that a small write takes to be on the disk of a folder.
func syncTime(dir string) (median time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	var times []time.Duration
	for range 9 {
		begin := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	return times[len(times)/2].Round(10 * time.Microsecond), nil
}

// journal checks that the journal of tasks can be read.
func (e *exam) journal() {
	held, err := worker.ReadJournal(filepath.Join(e.cfg.DataDir, "journal"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.ok("journal", "there is none yet")
	case errors.Is(err, fs.ErrPermission):
		e.fail("journal", asUser, "%v", err)
	case err != nil:
		e.warn("journal", "start the agent: it puts the file aside, and tasks that are missing are observed before they are repeated",
			"the journal of tasks is damaged: %v", err)
	default:
		e.ok("journal", "it can be read; tasks that are held: %d", held)
	}
}

// store checks that the log and the snapshots of a stopped voter can be read.
func (e *exam) store(ctx context.Context) {
	dir := filepath.Join(e.cfg.DataDir, "raft")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		e.ok("log", "the agent has no copy of the state")
		return
	}
	if e.running {
		e.ok("log", "the agent that runs reads it")
		return
	}
	r, err := raftgroup.ReadReport(ctx, e.id, dir)
	advice := "start the agent: it puts the damaged store aside, and the leader sends it the state. If a majority of the voters is " +
		"damaged, see docs/operations.md"
	switch {
	case errors.Is(err, fs.ErrPermission):
		e.fail("log", asUser, "%v", err)
	case err != nil:
		e.fail("log", advice, "%s cannot be read: %v", dir, err)
	case len(r.Damage) > 0:
		e.fail("log", advice, "%s is damaged: %s", dir, strings.Join(r.Damage, "; "))
	default:
		e.ok("log", "the log ends at entry %d of term %d", r.Last.Index, r.Last.Term)
	}
}
