package main

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
)

func TestProfileStory(t *testing.T) {
	s := newSession(t)
	s.run(0, "profile", "list")
	s.run(0, "profile", "provisioners")
	s.run(0, "profile", "create", "small", "--provisioner", "cloud", "-p", "numMachines=3", "-l", "flavor=tiny", "--keep-failed", "1h", "--max-runs", "5", "--label", "Small")
	s.run(4, "profile", "create", "small", "--provisioner", "cloud")
	s.run(1, "profile", "create", "bad", "--provisioner", "clowd", "-p", "numMachines=many")
	s.run(2, "profile", "create", "bad", "--provisioner", "cloud", "-p", "numMachines")
	s.run(2, "profile", "create", "bad", "--provisioner", "cloud", "--keep-failed", "long")
	s.run(1, "profile", "create", "bad", "--provisioner", "cloud", "-p", "providerField.pin=1234")
	s.stdin = "1234\n"
	s.run(0, "secret", "put", "pin")
	s.run(0, "secret", "list")
	s.file("big.yaml", "provisioner:\n  name: cloud\n  properties:\n    - {name: providerField.pin, value: '${secure(pin)}', editable: false}\ntimeout: 10m\n")
	s.run(0, "profile", "create", "big", "-f", "big.yaml")
	s.run(0, "profile", "edit", "big", "--keep-killed", "30m")
	s.run(0, "profile", "list", "-o", "wide")
	s.run(0, "profile", "get", "small")
	s.run(0, "profile", "get", "big", "-o", "yaml")
	s.run(3, "profile", "get", "nobody")
	s.run(0, "profile", "assign", "small")
	s.file("job.yaml", "label: A job\nsteps:\n  - {name: one, command: [\"true\"]}\n  - {name: two, on: one, script: \"echo done\"}\n")
	s.run(0, "program", "put", "job", "-f", "job.yaml")
	s.run(0, "program", "put", "job", "-f", "job.yaml")
	s.file("bad.yaml", "steps:\n  - {name: one}\n  - {name: one, script: x, on: all}\n")
	s.run(1, "program", "put", "bad", "-f", "bad.yaml")
	s.run(0, "program", "list")
	s.run(0, "program", "get", "job")
	s.run(0, "schedule", "put", "nightly", "--program", "job", "--cron", "30 2 * * *", "--zone", "Europe/Berlin")
	s.run(0, "schedule", "edit", "nightly", "--concurrency", "replace")
	s.run(1, "schedule", "put", "hourly", "--program", "job", "--cron", "61 * * * *", "--zone", "Nowhere")
	s.run(0, "schedule", "list")
	s.run(0, "schedule", "disable", "nightly")
	s.run(4, "schedule", "disable", "nightly")
	s.run(0, "schedule", "get", "nightly")
	// What is shown is taken as it is.
	for _, kind := range []string{"profile get big", "program get job", "schedule get nightly"} {
		words := strings.Fields(kind)
		_, out, _ := s.exec(append(words, "-o", "yaml")...)
		s.file("shown.yaml", out)
		s.run(0, words[0], "edit", words[2], "-f", "shown.yaml")
	}
	s.run(0, "profile", "find", "small")
	s.run(4, "profile", "delete", "small")
	s.run(0, "profile", "disable", "small")
	s.run(4, "profile", "delete", "small")
	s.run(4, "program", "delete", "job")
	s.run(0, "schedule", "delete", "nightly")
	s.run(0, "profile", "unassign")
	s.run(0, "profile", "delete", "small")
	s.run(0, "profile", "find", "small")
	s.run(0, "program", "delete", "job")
	s.run(0, "secret", "delete", "pin")
	s.as(apitest.User)
	s.run(1, "profile", "disable", "big")
	s.golden("profile")
}

// id gives the latest run's.
func (s *session) latest() string {
	s.t.Helper()
	v, err := s.mesh.View(context.Background(), api.Default, 0)
	if err != nil || len(v.Runs("acme")) == 0 {
		s.t.Fatal("there is no run", err)
	}
	return v.Runs("acme")[0].ID
}

// goes has these events happen to what is begun next, which writes a text where there is one.
func (s *session) goes(text string, events ...profile.Event) (wait func()) {
	var wg sync.WaitGroup
	v, _ := s.mesh.View(context.Background(), api.Default, 0)
	before := len(v.Runs("acme"))
	wg.Go(func() {
		for len(v.Runs("acme")) == before {
			v, _ = s.mesh.View(context.Background(), api.Default, v.Index())
		}
		id := v.Runs("acme")[0].ID
		if text != "" {
			s.mesh.Writes("run", text)
		}
		s.mesh.Happen(id, events...)
	})
	return wg.Wait
}

func TestRunStory(t *testing.T) {
	s := newSession(t)
	s.run(0, "profile", "create", "small", "--provisioner", "cloud", "-p", "numMachines=2", "-l", "flavor=tiny", "--keep-failed", "1h", "--max-runs", "1")
	s.as(apitest.User)
	s.run(0, "runs", "list")
	s.run(2, "run", "--profile", "small")
	s.run(3, "run", "--profile", "nobody", "--", "true")
	s.run(1, "run", "--profile", "small", "--env", "COOPR_X=1", "--", "true")

	// One that fails, and keeps its nodes.
	s.file("job.sh", "#!/bin/sh\necho hello\n")
	wait := s.goes("12:00:00.000   hello\n12:00:00.100 ! oh\n", append(apitest.Up(2), apitest.Ended(profile.Failed, "step run failed on c1-1: exit status 7"))...)
	s.run(1, "run", "--profile", "small", "-p", "flavor=huge", "--", "./job.sh", "data")
	wait()
	failed := s.latest()
	s.run(0, "runs", "list")
	s.run(0, "runs", "get", failed)
	s.run(0, "runs", "logs", failed)
	s.run(1, "run", "--profile", "small", "--", "true") // there is no room
	s.run(0, "runs", "list", "--status", "rejected")
	s.run(0, "runs", "extend", failed, "2h")
	s.run(2, "runs", "extend", failed, "long")
	s.run(2, "runs", "extend", failed)
	s.run(0, "runs", "extend", failed, "0")
	s.run(0, "runs", "get", failed)
	s.run(4, "runs", "stop", failed)
	s.run(0, "runs", "deprovision", failed)
	s.run(4, "runs", "deprovision", failed)
	s.mesh.Happen(failed, apitest.Lost...)
	s.run(0, "runs", "list", "--orphaned")
	s.run(0, "runs", "get", failed)
	s.as(apitest.Admin)
	s.run(0, "runs", "retry", failed)
	s.run(2, "runs", "purge", failed)
	s.run(0, "runs", "purge", failed, "--reason", "looked for it by hand")
	s.run(4, "runs", "retry", failed)

	// One that is detached, stopped with its nodes kept, and forced to its end.
	s.run(0, "run", "-d", "--profile", "small", "--", "sleep", "1000")
	id := s.latest()
	s.mesh.Happen(id, apitest.Up(2)...)
	s.run(0, "runs", "stop", id, "--keep", "--reason", "enough")
	s.run(0, "runs", "get", id)
	s.mesh.Happen(id, apitest.Ended(profile.Killed, ""))
	s.run(2, "runs", "force", id)
	s.run(0, "runs", "force", id, "--reason", "deleted in the console")
	s.run(3, "runs", "get", "nothing")
	s.run(0, "profile", "stats", "small")
	s.run(0, "profile", "stats", "small", "-o", "json")

	// One whose cluster cannot be made.
	s.run(0, "profile", "edit", "small", "--max-runs", "-1")
	wait = s.goes("", profile.Event{Kind: profile.Asking}, profile.Event{Kind: profile.CallFailed, Error: "the cloud does not know flavor tiny"})
	s.run(1, "run", "--profile", "small", "--", "true")
	wait()
	s.run(0, "runs", "get", s.latest())
	s.golden("run")
}

// TestRunIsLeft: Ctrl-C leaves the job alone, and says how to come back.
func TestRunIsLeft(t *testing.T) {
	s := newSession(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s.ctx = ctx
	code, _, errs := s.execSeen(func(all string) {
		if strings.Contains(all, "making a cluster") {
			cancel(errInterrupted)
		}
	}, "run", "--", "sleep", "1000")
	if id := s.latest(); code != exitInterrupted || !strings.Contains(errs, "coopr runs logs "+id+" --follow") || !strings.Contains(errs, "coopr runs stop "+id) {
		t.Errorf("%d %s", code, errs)
	}
}

// TestCompletionOfRuns: names of profiles, programs, schedules and runs, where they fit.
func TestCompletionOfRuns(t *testing.T) {
	s := newSession(t)
	for _, args := range [][]string{
		{"profile", "create", "small", "--provisioner", "cloud", "--keep-failed", "1h"}, {"run", "-d", "--profile", "small", "--", "true"},
	} {
		if code, _, errs := s.exec(args...); code != 0 {
			t.Fatal(errs)
		}
	}
	kept := s.latest()
	s.mesh.Happen(kept, append(apitest.Up(1), apitest.Ended(profile.Failed, ""))...)
	s.stdin = `{"steps":[{"command":["true"]}]}`
	s.exec("program", "put", "job")
	s.exec("schedule", "put", "nightly", "--program", "job", "--cron", "@daily")
	if code, _, errs := s.exec("run", "-d", "--", "true"); code != 0 {
		t.Fatal(errs)
	}
	goes := s.latest()
	for _, c := range []struct {
		line      string
		have, not string
	}{
		{"profile get |", "small", ""}, {"profile assign sm|", "small", "SYSTEM:native"}, {"profile assign small --program |", "job", ""},
		{"profile create x --provisioner |", "cluster", ""}, {"run --profile SY|", "SYSTEM:native", "small"}, {"run --on |", "each", ""}, {"run --program |", "job", ""},
		{"program get |", "job", ""}, {"program delete |", "job", ""}, {"program put |", "job", ""},
		{"schedule get |", "nightly", ""}, {"schedule enable |", "nightly", ""}, {"schedule put x --program |", "job", ""}, {"schedule put x --concurrency |", "replace", ""},
		{"runs get |", kept, "\x00"}, {"runs get |", goes, ""}, {"runs stop |", goes, kept}, {"runs extend |", kept, goes}, {"runs deprovision |", kept, goes},
		{"runs logs |", kept, ""}, {"runs force |", goes, ""}, {"runs list --profile |", "small", ""}, {"runs list --schedule |", "nightly", ""},
	} {
		words := strings.Split(c.line, " ")
		words[len(words)-1] = strings.TrimSuffix(words[len(words)-1], "|")
		code, out, errs := s.exec(append([]string{"__complete"}, words...)...)
		if code != 0 || !strings.Contains(out, c.have) || c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%s: %d, %q but not %q\n%s%s", c.line, code, c.have, c.not, out, errs)
		}
	}
	if _, out, _ := s.exec("__complete", "runs", "retry", ""); strings.Contains(out, kept) || strings.Contains(out, goes) {
		t.Errorf("what is no orphan is offered: %s", out)
	}
}
