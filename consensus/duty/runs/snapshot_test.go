package runs

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
)

// TestSnapshot: all that profiles and runs have in the state is in a snapshot of it.
func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.cloud.fail["delete"] = true
		l.lead()
		defer func() { l.stop() }()
		l.until(l.start(profile.Profile{KeepAlive: profile.KeepAlive{Failed: 1000}}), over)
		l.put("program", "job", profile.Program{Steps: []profile.Step{{Name: "run", On: profile.OnEach, Script: "true", Timeout: 5}}, Timeout: 7})
		s := profile.Schedule{Program: "job", Cron: "@daily", Properties: map[string]string{profile.ProfileKey: "p"}}
		s.Complete()
		l.put("schedule", "s", s)
		l.put("preferences", "job", map[string]string{profile.ProfileKey: "p"})
		l.put("secret", "key", profile.Secret{Value: model.NewSecret("value"), UsableBy: []string{profile.Everybody}})
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		var want, got bytes.Buffer
		if err := l.m.View().Write(&want); err != nil {
			t.Fatal(err)
		}
		other, err := state.New(state.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Restore(io.NopCloser(bytes.NewReader(want.Bytes()))); err != nil {
			t.Fatal(err)
		}
		if err := other.View().Write(&got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want.Bytes(), got.Bytes()) || len(other.View().Runs("t")) != 2 {
			t.Errorf("%d bytes came back as %d, with %d runs", want.Len(), got.Len(), len(other.View().Runs("t")))
		}
	})
}
