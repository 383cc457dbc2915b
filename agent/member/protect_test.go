package member

import (
	"context"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestProtect upgrades a voter. It encrypts nothing on its disk while it may have to go back to the build of the level before.
func TestProtect(t *testing.T) {
	s, _ := voterOf(t, true)
	m, told := s.Supervisor.Member(), 0
	m.cfg.ResourcesChanged = func() { told++ }
	raise := func(level uint32) {
		t.Helper()
		answers, err := m.Propose(t.Context(), &pb.Command{Change: &pb.Command_RaiseFeatureLevel{
			RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}})
		if err != nil || answers[0].Err != nil {
			t.Fatal(err, answers)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if m.protect(ended); m.cfg.Keyring.Begun() || told != 0 {
		t.Error("it encrypts before it knows the level of the mesh")
	}
	raise(logformat.ProtectLevel - 1)
	if m.protect(ended); m.cfg.Keyring.Begun() || told != 0 {
		t.Error("it encrypts what the older build cannot read")
	}
	done := make(chan struct{})
	go func() { defer close(done); m.protect(t.Context()) }()
	raise(logformat.ProtectLevel)
	<-done
	if !m.cfg.Keyring.Begun() || told != 1 {
		t.Error("it encrypts nothing at the new level, and has its store told", told)
	}
	if m.protect(ended); told != 2 { // as at a start at that level
		t.Error("its store was not told")
	}
}
