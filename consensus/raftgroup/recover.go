package raftgroup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

const (
	// RecoverFile is the name of the file that an operator puts into the data directory of each
	// surviving agent, while the agents are stopped, after a majority is lost for good. It holds the
	// new group:
	//
	//	[{"id": "…", "address": "10.0.0.1:55055"}, {"id": "…", "address": "…", "non_voter": true}]
	//
	// An agent reads it only at start, and renames it to RecoveredFile after use. Entries that were
	// under way when the majority was lost become committed, whether or not they were before.
	RecoverFile = "peers.json"
	// RecoveredFile is the name of the RecoverFile after use.
	RecoveredFile = "peers.info"
	// maxRecoverFile bounds the file's size in bytes.
	maxRecoverFile = 1 << 20
)

// ReadRecoverFile reads and checks a RecoverFile. Its error names all faults. If the list could be
// parsed, it is returned together with the error.
func ReadRecoverFile(path string) ([]Server, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	raw, err := io.ReadAll(io.LimitReader(f, maxRecoverFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	servers, err := parseRecoverFile(raw)
	if err != nil {
		return servers, fmt.Errorf("%s: %w", path, err)
	}
	return servers, nil
}

func parseRecoverFile(raw []byte) ([]Server, error) {
	if len(raw) > maxRecoverFile {
		return nil, fmt.Errorf("larger than %d bytes", maxRecoverFile)
	}
	var entries []struct {
		ID       string `json:"id"`
		Address  string `json:"address"`
		NonVoter bool   `json:"non_voter"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&entries); err != nil {
		return nil, fmt.Errorf(`not a list of {"id", "address", "non_voter"}: %w`, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the list of members")
	}
	servers := make([]Server, len(entries))
	for i, e := range entries {
		servers[i] = Server{ID: e.ID, Addr: e.Address, Voter: !e.NonVoter}
	}
	return servers, errors.Join(checkServers(servers), checkAddresses(servers))
}

// checkServers reports all faults of a group in one error, each with its path.
func checkServers(servers []Server) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	voters := 0
	ids, addrs := map[string]int{}, map[string]int{}
	for i, s := range servers {
		if s.ID == "" {
			fault("[%d].id: is empty", i)
		} else if j, ok := ids[s.ID]; ok {
			fault("[%d].id: %s is that of [%d] already", i, s.ID, j)
		} else {
			ids[s.ID] = i
		}
		if s.Addr == "" {
			fault("[%d].address: is empty", i)
		} else if j, ok := addrs[s.Addr]; ok {
			fault("[%d].address: %s is that of [%d] already", i, s.Addr, j)
		} else {
			addrs[s.Addr] = i
		}
		if s.Voter {
			voters++
		}
	}
	if voters == 0 {
		fault("there is no voter")
	}
	return errors.Join(faults...)
}

// checkAddresses reports every address that is not of the form host:port. It is meant for addresses
// that a person has typed.
func checkAddresses(servers []Server) error {
	var faults []error
	for i, s := range servers {
		if s.Addr == "" {
			continue // named already
		}
		if host, port, err := net.SplitHostPort(s.Addr); err != nil || host == "" || port == "" {
			faults = append(faults, fmt.Errorf("[%d].address: %q is not host:port", i, s.Addr))
		}
	}
	return errors.Join(faults...)
}

// recoverFromFile replaces the group's members by those that the operator has written into RecoverFile,
// if there is one, and puts the file aside.
func recoverFromFile(cfg Config, conf *raft.Config, fsm raft.FSM, snapshots raft.SnapshotStore) error {
	path := filepath.Join(cfg.RecoveryDir, RecoverFile)
	servers, err := ReadRecoverFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if servers != nil && !slices.ContainsFunc(servers, func(s Server) bool { return s.ID == cfg.ID }) {
		err = errors.Join(err, fmt.Errorf("this agent, %s, is not among the members in %s", cfg.ID, path))
	}
	if err != nil {
		return fmt.Errorf("recovery: %w; correct the file or remove it", err)
	}
	if err := recoverStores(conf, fsm, cfg.Stores, snapshots, cfg.Transport, servers); err != nil {
		return fmt.Errorf("recovery by %s: %w", path, err)
	}
	if err := os.Rename(path, filepath.Join(cfg.RecoveryDir, RecoveredFile)); err != nil {
		return fmt.Errorf("recovery: put %s aside: %w", path, err)
	}
	cfg.Logger.Warn("the Raft group was given a new set of members by the operator", "file", path, "members", servers)
	return nil
}

func recoverStores(conf *raft.Config, fsm raft.FSM, s *logstore.Stores, snapshots raft.SnapshotStore, t raft.Transport,
	servers []Server) error {
	has, err := s.HasState()
	if err != nil {
		return err
	}
	if !has {
		return errors.New("this agent holds no Raft state to recover; a new agent joins instead")
	}
	c, err := configuration(servers)
	if err != nil {
		return err
	}
	if err := raft.RecoverCluster(conf, fsm, s.Log, s.Stable, snapshots, t, c); err != nil {
		return err
	}
	return s.Guard().Forgive()
}
