package run_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
	"github.com/coopr/coopr/cmd/coopr/internal/root"
)

func TestProfileStory(t *testing.T) {
	s := clitest.New(t)
	s.Run(0, "profile", "list")
	s.Run(0, "profile", "provisioners")
	s.Run(0, "profile", "create", "small", "--provisioner", "cloud", "-p", "numMachines=3", "-l", "flavor=tiny", "--keep-failed", "1h",
		"--max-runs", "5", "--label", "Small")
	s.Run(4, "profile", "create", "small", "--provisioner", "cloud")
	s.Run(1, "profile", "create", "bad", "--provisioner", "clowd", "-p", "numMachines=many")
	s.Run(2, "profile", "create", "bad", "--provisioner", "cloud", "-p", "numMachines")
	s.Run(2, "profile", "create", "bad", "--provisioner", "cloud", "--keep-failed", "long")
	s.Run(1, "profile", "create", "bad", "--provisioner", "cloud", "-p", "providerField.pin=1234")
	s.Stdin = "1234\n"
	s.Run(0, "secret", "put", "pin")
	s.Run(0, "secret", "list")
	s.File("big.yaml", "provisioner:\n  name: cloud\n  properties:\n    - {name: providerField.pin, value: '${secure(pin)}', editable: "+
		"false}\ntimeout: 10m\n")
	s.Run(0, "profile", "create", "big", "-f", "big.yaml")
	s.Run(0, "profile", "edit", "big", "--keep-killed", "30m")
	s.Run(0, "profile", "list", "-o", "wide")
	s.Run(0, "profile", "get", "small")
	s.Run(0, "profile", "get", "big", "-o", "yaml")
	s.Run(3, "profile", "get", "nobody")
	s.Run(0, "profile", "assign", "small")
	s.File("job.yaml", "label: A job\nsteps:\n  - {name: one, command: [\"true\"]}\n  - {name: two, on: one, script: \"echo done\"}\n")
	s.Run(0, "program", "put", "job", "-f", "job.yaml")
	s.Run(0, "program", "put", "job", "-f", "job.yaml")
	s.File("bad.yaml", "steps:\n  - {name: one}\n  - {name: one, script: x, on: all}\n")
	s.Run(1, "program", "put", "bad", "-f", "bad.yaml")
	s.Run(0, "program", "list")
	s.Run(0, "program", "get", "job")
	s.Run(0, "schedule", "put", "nightly", "--program", "job", "--cron", "30 2 * * *", "--zone", "Europe/Berlin")
	s.Run(0, "schedule", "edit", "nightly", "--concurrency", "replace")
	s.Run(1, "schedule", "put", "hourly", "--program", "job", "--cron", "61 * * * *", "--zone", "Nowhere")
	s.Run(0, "schedule", "list")
	s.Run(0, "schedule", "disable", "nightly")
	s.Run(4, "schedule", "disable", "nightly")
	s.Run(0, "schedule", "get", "nightly")
	// The output of get is accepted as input without changes.
	for _, kind := range []string{"profile get big", "program get job", "schedule get nightly"} {
		words := strings.Fields(kind)
		_, out, _ := s.Exec(append(words, "-o", "yaml")...)
		s.File("shown.yaml", out)
		s.Run(0, words[0], "edit", words[2], "-f", "shown.yaml")
	}
	s.Run(0, "profile", "find", "small")
	s.Run(4, "profile", "delete", "small")
	s.Run(0, "profile", "disable", "small")
	s.Run(4, "profile", "delete", "small")
	s.Run(4, "program", "delete", "job")
	s.Run(0, "schedule", "delete", "nightly")
	s.Run(0, "profile", "unassign")
	s.Run(0, "profile", "delete", "small")
	s.Run(0, "profile", "find", "small")
	s.Run(0, "program", "delete", "job")
	s.Run(0, "secret", "delete", "pin")
	s.As(apitest.User)
	s.Run(1, "profile", "disable", "big")
	s.Golden("profile")
}

// latest returns the id of the latest run.
func latest(s *clitest.Session) string {
	s.T.Helper()
	v, err := s.Mesh.View(context.Background(), api.Stale, 0)
	if err != nil || len(v.Runs("acme")) == 0 {
		s.T.Fatal("there is no run", err)
	}
	return v.Runs("acme")[0].ID
}

// goes calls does with the id of the next run that starts. The function that it returns waits until that has happened.
func goes(s *clitest.Session, does func(id string)) (wait func()) {
	var wg sync.WaitGroup
	v, _ := s.Mesh.View(context.Background(), api.Stale, 0)
	before := len(v.Runs("acme"))
	wg.Go(func() {
		for len(v.Runs("acme")) == before {
			v, _ = s.Mesh.View(context.Background(), api.Stale, v.Index())
		}
		does(v.Runs("acme")[0].ID)
	})
	return wg.Wait
}

// TestRangesOfProfiles sets, keeps and removes the range of a property.
func TestRangesOfProfiles(t *testing.T) {
	s := clitest.New(t)
	s.As(apitest.Admin)
	for _, x := range []struct {
		code       int
		args, want string
	}{
		{0, "create small --provisioner cloud -p numMachines=3 --range numMachines=2..10", "was created"},
		{0, "get small", "2..10"},
		{0, "edit small -p numMachines=4", "was changed"},
		{0, "get small", "2..10"}, // another value keeps the range
		{1, "edit small -p numMachines=11", "must be in the range 2..10"},
		{2, "edit small --range numMachines=10..2", "write MIN..MAX"},
		{2, "edit small --range flavor=1..2", `no property "flavor"`},
		{0, "edit small --range numMachines= -p numMachines=11", "was changed"},
	} {
		code, out, errs := s.Exec(append([]string{"profile"}, strings.Fields(x.args)...)...)
		if code != x.code || !strings.Contains(out+errs, x.want) {
			t.Errorf("%s: %d %s%s", x.args, code, out, errs)
		}
	}
	if _, out, _ := s.Exec("profile", "get", "small", "-o", "json"); strings.Contains(out, `"range"`) {
		t.Errorf("the range is still there: %s", out)
	}
}

func TestRunStory(t *testing.T) {
	s := clitest.New(t)
	s.Run(0, "profile", "create", "small", "--provisioner", "cloud", "-p", "numMachines=2", "-l", "flavor=tiny", "--keep-failed", "1h",
		"--max-runs", "1")
	s.As(apitest.User)
	s.Run(0, "runs", "list")
	s.Run(2, "run", "--profile", "small")
	s.Run(3, "run", "--profile", "nobody", "--", "true")
	s.Run(1, "run", "--profile", "small", "--env", "COOPR_X=1", "--", "true")

	// A run that fails and keeps its nodes.
	s.File("job.sh", "#!/bin/sh\necho hello\n")
	wait := goes(s, func(id string) {
		s.Mesh.Up(id)
		s.Mesh.Writes(id, "12:00:00.000   hello\n12:00:00.100 ! oh\n")
		s.Mesh.Happen(id, apitest.Ended(profile.Failed, "step run failed on c1-1: exit status 7"))
	})
	s.Run(1, "run", "--profile", "small", "-p", "flavor=huge", "--", "./job.sh", "data")
	wait()
	failed := latest(s)
	s.Run(0, "runs", "list")
	s.Run(0, "runs", "get", failed)
	s.Run(0, "runs", "logs", failed)
	for most, want := range map[int]string{0: "agent a, which has it, cannot be reached", len("12:00:00.000   hello\n"): "the rest of the output"} {
		s.Mesh.Break(most)
		code, out, errs := s.Exec("runs", "logs", failed)
		if got := strings.Count(out, "hello"); code != 0 || strings.Contains(errs, "oh\n") || !strings.Contains(errs, want) ||
			got > 0 != (most > 0) || got != strings.Count(errs, "the rest of the output is missing: ") {
			t.Errorf("broken off after %d bytes: %d %s%s", most, code, out, errs)
		}
	}
	s.Mesh.Reconnect()
	s.Run(1, "run", "--profile", "small", "--", "true") // the profile allows no more runs
	s.Run(0, "runs", "list", "--status", "rejected")
	s.Run(0, "runs", "extend", failed, "2h")
	s.Run(2, "runs", "extend", failed, "long")
	s.Run(2, "runs", "extend", failed)
	s.Run(0, "runs", "extend", failed, "0")
	s.Run(0, "runs", "get", failed)
	s.Run(4, "runs", "stop", failed)
	s.Run(0, "runs", "deprovision", failed)
	s.Run(4, "runs", "deprovision", failed)
	s.Mesh.Happen(failed, apitest.Lost...)
	s.Run(0, "runs", "list", "--orphaned")
	s.Run(0, "runs", "get", failed)
	s.As(apitest.Admin)
	s.Run(0, "runs", "retry", failed)
	s.Run(2, "runs", "purge", failed)
	s.Run(0, "runs", "purge", failed, "--reason", "looked for it by hand")
	s.Run(4, "runs", "retry", failed)

	// A detached run that is stopped, keeps its nodes, and is marked as deleted.
	s.Run(0, "run", "-d", "--profile", "small", "--", "sleep", "1000")
	id := latest(s)
	s.Mesh.Up(id)
	s.Run(0, "runs", "stop", id, "--keep", "--reason", "enough")
	s.Run(0, "runs", "get", id)
	s.Mesh.Happen(id, apitest.Ended(profile.Killed, ""))
	s.Run(2, "runs", "force", id)
	s.Run(0, "runs", "force", id, "--reason", "deleted in the console")
	s.Run(3, "runs", "get", "nothing")
	s.Run(0, "profile", "stats", "small")
	s.Run(0, "profile", "stats", "small", "-o", "json")

	// A run whose cluster cannot be created.
	s.Run(0, "profile", "edit", "small", "--max-runs", "-1")
	wait = goes(s, func(id string) {
		s.Mesh.Happen(id, profile.Event{Kind: profile.Asking}, profile.Event{Kind: profile.CallFailed,
			Error: "the cloud does not know flavor tiny"})
	})
	s.Run(1, "run", "--profile", "small", "--", "true")
	wait()
	s.Run(0, "runs", "get", latest(s))
	s.Golden("run")
}

// TestRunIsLeft checks that the job continues after Ctrl-C, and that the command says how to follow it again.
func TestRunIsLeft(t *testing.T) {
	s := clitest.New(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if code, _, errs := s.Exec("profile", "create", "small", "--provisioner", "cloud"); code != 0 {
		t.Fatal(errs)
	}
	s.Ctx = ctx
	code, _, errs := s.ExecSeen(func(all string) {
		if strings.Contains(all, "creating a cluster") {
			cancel(cli.ErrInterrupted)
		}
	}, "run", "--profile", "small", "--", "sleep", "1000")
	if id := latest(s); code != root.ExitInterrupted || !strings.Contains(errs, "coopr runs logs "+id+" --follow") ||
		!strings.Contains(errs, "coopr runs stop "+id) {
		t.Errorf("%d %s", code, errs)
	}
}

// TestCompletionOfRuns checks which names of profiles, programs, schedules and runs are offered.
func TestCompletionOfRuns(t *testing.T) {
	s := clitest.New(t)
	for _, args := range [][]string{
		{"profile", "create", "small", "--provisioner", "cloud", "--keep-failed", "1h"}, {"run", "-d", "--profile", "small", "--", "true"},
	} {
		if code, _, errs := s.Exec(args...); code != 0 {
			t.Fatal(errs)
		}
	}
	kept := latest(s)
	s.Mesh.Up(kept)
	s.Mesh.Happen(kept, apitest.Ended(profile.Failed, ""))
	s.Stdin = `{"steps":[{"command":["true"]}]}`
	s.Exec("program", "put", "job")
	s.Exec("schedule", "put", "nightly", "--program", "job", "--cron", "@daily")
	if code, _, errs := s.Exec("run", "-d", "--profile", "small", "--", "true"); code != 0 {
		t.Fatal(errs)
	}
	active := latest(s)
	for _, c := range []struct {
		line      string
		have, not string
	}{
		{"profile get |", "small", ""}, {"profile assign sm|", "small", "SYSTEM:native"}, {"profile assign small --program |", "job", ""},
		{"profile create x --provisioner |", "cluster", ""}, {"run --profile SY|", "SYSTEM:native", "small"}, {"run --on |", "each", ""},
		{"run --program |", "job", ""},
		{"program get |", "job", ""}, {"program delete |", "job", ""}, {"program put |", "job", ""},
		{"schedule get |", "nightly", ""}, {"schedule enable |", "nightly", ""}, {"schedule put x --program |", "job", ""},
		{"schedule put x --concurrency |", "replace", ""},
		{"runs get |", kept, "\x00"}, {"runs get |", active, ""}, {"runs stop |", active, kept}, {"runs extend |", kept, active},
		{"runs deprovision |", kept, active},
		{"runs logs |", kept, ""}, {"runs force |", active, ""}, {"runs list --profile |", "small", ""}, {"runs list --schedule |",
			"nightly", ""},
	} {
		words := strings.Split(c.line, " ")
		words[len(words)-1] = strings.TrimSuffix(words[len(words)-1], "|")
		code, out, errs := s.Exec(append([]string{"__complete"}, words...)...)
		if code != 0 || !strings.Contains(out, c.have) || c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%s: %d, %q but not %q\n%s%s", c.line, code, c.have, c.not, out, errs)
		}
	}
	if _, out, _ := s.Exec("__complete", "runs", "retry", ""); strings.Contains(out, kept) || strings.Contains(out, active) {
		t.Errorf("a run that is not an orphan is offered: %s", out)
	}
}
