package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// peer is one line of the peers file.
type peer struct {
	ID   string `json:"id"`
	Addr string `json:"addr"`
}

// peersFile is what a restarted agent remembers: whom to ask, where it was itself, and its last epoch.
type peersFile struct {
	Addr  string `json:"addr"`
	Epoch uint64 `json:"epoch"`
	Peers []peer `json:"peers"`
}

// rememberEvery bounds how often the peers file is written.
const rememberEvery = 5 * time.Second

// loadPeers reads the peers file and gives this agent's last address and epoch. The file is a help, not a truth: where it cannot be read the
// agent joins by its seeds.
func (m *Mesh) loadPeers() (addr string, epoch uint64) {
	if m.cfg.PeersFile == "" {
		return "", 0
	}
	raw, err := os.ReadFile(m.cfg.PeersFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0
	}
	var file peersFile
	if err == nil {
		err = json.Unmarshal(raw, &file)
	}
	if err != nil {
		m.log.Warn("cannot read the known peers, joining by the configured addresses only", "file", m.cfg.PeersFile, "error", err)
		return "", 0
	}
	m.peers, m.newborn = file.Peers, false
	return file.Addr, file.Epoch
}

// rememberLoop keeps the peers file up to date, and writes it once more at the end.
func (m *Mesh) rememberLoop(ctx context.Context) {
	if m.cfg.PeersFile == "" {
		return
	}
	for {
		select {
		case <-m.remember:
		case <-ctx.Done():
			m.savePeers()
			return
		}
		m.savePeers()
		select {
		case <-time.After(rememberEvery):
		case <-ctx.Done():
		}
	}
}

func (m *Mesh) savePeers() {
	m.mu.Lock()
	file := peersFile{Addr: m.addr.String(), Epoch: m.epoch}
	m.mu.Unlock()
	for _, member := range m.Members() {
		if member.ID != m.cfg.ID && member.Addr != "" && member.Status != StatusLeft {
			file.Peers = append(file.Peers, peer{member.ID, member.Addr})
		}
	}
	if len(file.Peers) == 0 {
		file.Peers = slices.Clone(m.peers) // alone: what was known before is all there is
	}
	raw, err := json.MarshalIndent(file, "", "  ")
	if err == nil {
		err = replaceFile(m.cfg.PeersFile, raw)
	}
	if err != nil {
		m.log.Warn("cannot write the known peers: this agent would need its configured addresses to join again", "error", err)
	}
}

// replaceFile writes a file all or nothing. Losing the newest version in a power cut is no harm, so it is not synced.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
