package state

import (
	"encoding/json"
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// putSetting does to a setting what a person wants.
func (a *applier) putSetting(c *pb.Command, p *pb.PutSetting) Answer {
	tenant := c.Tenant
	if p.System {
		tenant = ""
	} else if err := a.tenant(tenant); err != nil {
		return Answer{Err: err}
	}
	var err error
	switch p.Kind {
	case SetProfile:
		err = a.setProfile(tenant, p)
	case SetProgram:
		err = a.setProgram(tenant, p)
	case SetSchedule:
		err = a.setSchedule(tenant, c.Actor, p)
	case SetPreferences:
		err = a.setPreferences(tenant, p)
	case SetSecret:
		err = a.setSecret(tenant, p)
	default:
		err = problem.New(problem.Unsupported, "there is no setting called %q", p.Kind)
	}
	if err != nil {
		return Answer{Err: err}
	}
	a.event(model.Event{Type: p.Kind + ".changed", Tenant: c.Tenant, Subject: p.Name, Status: p.Order, Actor: c.Actor})
	return Answer{Subject: p.Name}
}

func conflict(format string, args ...any) error {
	return problem.New(problem.Conflict, format, args...)
}

func absent(format string, args ...any) error {
	return problem.New(problem.NotFound, format, args...)
}

func refOf(tenant, name string) profile.Ref {
	if tenant == "" {
		return profile.Ref{Scope: profile.System, Name: name}
	}
	return profile.Ref{Scope: profile.User, Name: name}
}

func (a *applier) setProfile(tenant string, p *pb.PutSetting) error {
	ref := refOf(tenant, p.Name)
	if ref == profile.NativeRef {
		return conflict("profile %s is always there and cannot be changed", ref)
	}
	have := get[profileRow](a.txn, tProfiles, "id", tenant, p.Name)
	if have == nil && p.Order != "put" && p.Order != "create" {
		return absent("there is no profile %s", ref)
	}
	next := &profileRow{Tenant: tenant}
	switch p.Order {
	case "put", "create":
		if have != nil && p.Order == "create" {
			return conflict("profile %s exists", ref)
		}
		if err := json.Unmarshal(p.Body, &next.Profile); err != nil {
			return problem.New(problem.Unsupported, "profile: %w", err)
		}
		next.Name, next.Status, next.Created = p.Name, profile.Enabled, a.now/1000
		if have != nil {
			next.Status, next.Created = have.Status, have.Created
		}
	case "enable", "disable":
		*next = *have
		status := map[string]string{"enable": profile.Enabled, "disable": profile.Disabled}[p.Order]
		if have.Status == status {
			return conflict("profile %s is %s already", ref, status)
		}
		next.Status = status
	case "delete":
		if err := a.mayDelete(ref, tenant, have); err != nil {
			return err
		}
		if u := get[usageRow](a.txn, tUsage, "id", tenant, SetProfile, p.Name); u != nil {
			a.remove(tUsage, u)
		}
		a.remove(tProfiles, have)
		return nil
	default:
		return problem.New(problem.Unsupported, "order %q", p.Order)
	}
	next.Scope, next.Version = ref.Scope, a.index
	a.put(tProfiles, next)
	return nil
}

// mayDelete says what stands in the way of a profile's deletion: that it is enabled,
// then what it is assigned to, then the runs that use it (docs/spec/profiles.md §6).
func (a *applier) mayDelete(ref profile.Ref, tenant string, p *profileRow) error {
	if p.Status == profile.Enabled {
		return conflict("profile %s is enabled: disable it first", ref)
	}
	if to := assignments(a.txn, tenant, p.Name); len(to) > 0 {
		return conflict("profile %s is assigned to %s%s: assign another first", ref, to[0], more(len(to)))
	}
	if runs := list[profile.Run](a.txn, tRuns, "up", tenant, p.Name); len(runs) > 0 {
		return conflict("profile %s is in use by run %s of program %s%s: wait for it, or stop it", ref, runs[0].ID, runs[0].Program.Name, more(len(runs)))
	}
	return nil
}

func more(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n-1)
}

// mayAssign says whether settings may name the profile that they do.
func (a *applier) mayAssign(tenant string, properties map[string]string) error {
	s := properties[profile.ProfileKey]
	if s == "" {
		return nil
	}
	ref, err := profile.ParseRef(s)
	if err != nil {
		return problem.Wrap(problem.Unsupported, err)
	}
	switch p := a.profile(ref, tenant); {
	case p == nil:
		return absent("there is no profile %s", ref)
	case p.Status == profile.Disabled:
		return conflict("profile %s is disabled: enable it, or choose another", ref)
	}
	return nil
}

func (a *applier) program(tenant, name string) *programRow {
	var last *programRow
	each(a.txn, tPrograms, "id_prefix", func(r *programRow) bool { last = r; return true }, tenant, name)
	return last
}

// keptVersions is how many versions of a program are kept.
const keptVersions = 50

func (a *applier) setProgram(tenant string, p *pb.PutSetting) error {
	have := a.program(tenant, p.Name)
	switch {
	case tenant == "":
		return problem.New(problem.Unsupported, "programs belong to tenants")
	case p.Order == "create" && have != nil:
		return conflict("program %s exists, at version %d", p.Name, have.Version)
	case p.Order == "put" || p.Order == "create":
		next := &programRow{Tenant: tenant}
		if err := json.Unmarshal(p.Body, &next.Program); err != nil {
			return problem.New(problem.Unsupported, "program: %w", err)
		}
		if next.Name, next.Version = p.Name, 1; have != nil {
			next.Version = have.Version + 1
		}
		a.put(tPrograms, next)
		all := list[programRow](a.txn, tPrograms, "id_prefix", tenant, p.Name)
		for _, old := range all[:max(len(all)-keptVersions, 0)] {
			a.remove(tPrograms, old)
		}
		return nil
	case p.Order != "delete":
		return problem.New(problem.Unsupported, "order %q", p.Order)
	case have == nil:
		return absent("there is no program %q", p.Name)
	}
	if s := list[profile.Schedule](a.txn, tSchedules, "program", tenant, p.Name); len(s) > 0 {
		return conflict("program %s has the schedule %s%s: delete that first", p.Name, s[0].Name, more(len(s)))
	}
	for _, old := range list[programRow](a.txn, tPrograms, "id_prefix", tenant, p.Name) {
		a.remove(tPrograms, old)
	}
	if prefs := get[profile.Settings](a.txn, tPreferences, "id", tenant, p.Name); prefs != nil {
		a.remove(tPreferences, prefs)
	}
	if u := get[usageRow](a.txn, tUsage, "id", tenant, SetProgram, p.Name); u != nil {
		a.remove(tUsage, u)
	}
	return nil
}

func (a *applier) setSchedule(tenant, actor string, p *pb.PutSetting) error {
	have := get[profile.Schedule](a.txn, tSchedules, "id", tenant, p.Name)
	if have == nil && p.Order != "put" && p.Order != "create" {
		return absent("there is no schedule %q", p.Name)
	}
	next := &profile.Schedule{}
	switch p.Order {
	case "put", "create":
		if have != nil && p.Order == "create" {
			return conflict("schedule %s exists", p.Name)
		}
		if err := json.Unmarshal(p.Body, next); err != nil {
			return problem.New(problem.Unsupported, "schedule: %w", err)
		}
		if a.program(tenant, next.Program) == nil {
			return absent("there is no program %q", next.Program)
		}
		if err := a.mayAssign(tenant, next.Properties); err != nil {
			return err
		}
		// What lies before a schedule is none of its times.
		next.Name, next.Status, next.Last, next.Actor = p.Name, profile.Enabled, a.now, actor
		if have != nil {
			next.Status, next.Skipped, next.LastRun = have.Status, have.Skipped, have.LastRun
			if have.Cron == next.Cron && have.TimeZone == next.TimeZone {
				next.Last, next.Waits = have.Last, have.Waits
			}
		}
	case "enable", "disable":
		*next = *have
		status := map[string]string{"enable": profile.Enabled, "disable": profile.Disabled}[p.Order]
		if have.Status == status {
			return conflict("schedule %s is %s already", p.Name, status)
		}
		next.Status, next.Waits = status, 0
		if p.Order == "enable" {
			next.Last = a.now // what was due meanwhile was not wanted
		}
	case "delete":
		a.remove(tSchedules, have)
		a.batch.Schedules = true
		return nil
	default:
		return problem.New(problem.Unsupported, "order %q", p.Order)
	}
	next.Tenant, next.Version = tenant, a.index
	a.put(tSchedules, next)
	a.batch.Schedules = true
	return nil
}

func (a *applier) setPreferences(tenant string, p *pb.PutSetting) error {
	have := get[profile.Settings](a.txn, tPreferences, "id", tenant, p.Name)
	if p.Order == "delete" {
		if have == nil {
			return absent("there are no such preferences")
		}
		a.remove(tPreferences, have)
		return nil
	}
	next := &profile.Settings{Tenant: tenant, Program: p.Name, Version: a.index}
	if err := json.Unmarshal(p.Body, &next.Properties); err != nil {
		return problem.New(problem.Unsupported, "preferences: %w", err)
	}
	if p.Name != "" && a.program(tenant, p.Name) == nil {
		return absent("there is no program %q", p.Name)
	}
	if err := a.mayAssign(tenant, next.Properties); err != nil {
		return err
	}
	a.put(tPreferences, next)
	return nil
}

func (a *applier) setSecret(tenant string, p *pb.PutSetting) error {
	if p.Order == "delete" {
		have := get[secretRow](a.txn, tSecrets, "id", tenant, p.Name)
		if have == nil {
			return absent("there is no secret %q", p.Name)
		}
		a.remove(tSecrets, have)
		return nil
	}
	a.put(tSecrets, &secretRow{tenant, p.Name, string(p.Body)})
	return nil
}
