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

// peersFile is what an agent remembers across restarts: its last address and epoch, and the addresses of other agents.
type peersFile struct {
	Addr  string `json:"addr"`
	Epoch uint64 `json:"epoch"`
	Peers []peer `json:"peers"`
}

// rememberEvery bounds how often the peers file is written.
const rememberEvery = 5 * time.Second

// loadPeers sets m.peers from the peers file and returns this agent's last address and epoch. If there is no such file, or
// it cannot be read, loadPeers returns "" and 0, and the agent joins through the configured addresses only.
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
		file, err = decodePeers(raw)
	}
	if err != nil {
		m.log.Warn("the file of known agents cannot be read; this agent joins through the configured addresses only", "file", m.cfg.PeersFile,
			"error", err)
		return "", 0
	}
	m.peers, m.newborn = file.Peers, false
	return file.Addr, file.Epoch
}

func decodePeers(raw []byte) (file peersFile, err error) {
	err = json.Unmarshal(raw, &file)
	return file, err
}

// rememberLoop keeps the peers file up to date until ctx ends, and then writes it once more.
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
	if len(file.Peers) == 0 { // this agent is alone: keep what was known before
		gone := m.view.gone()
		file.Peers = slices.DeleteFunc(slices.Clone(m.peers), func(p peer) bool { return gone[p.ID] })
	}
	raw, err := json.MarshalIndent(file, "", "  ")
	if err == nil {
		err = replaceFile(m.cfg.PeersFile, raw)
	}
	if err != nil {
		m.log.Warn("the file of known agents cannot be written; after a restart this agent needs its configured addresses to join", "error", err)
	}
}

// replaceFile replaces a file atomically. It does not sync: losing the newest version in a power cut does no harm.
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
