package state

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// runSettings changes what runs are made from: profiles, programs, schedules, preferences and secrets.
type runSettings struct{ *writer }

// putSetting carries out an order about a setting.
func (a runSettings) putSetting(c *pb.Command, p *pb.PutSetting) Answer {
	tenant := c.Tenant
	if p.System {
		tenant = ""
	} else if err := a.tenant(tenant); err != nil {
		return Answer{Err: err}
	}
	var err error
	switch p.Kind {
	case pb.SettingKind_SETTING_KIND_PROFILE:
		err = a.setProfile(tenant, p)
	case pb.SettingKind_SETTING_KIND_PROGRAM:
		err = a.setProgram(tenant, c.Actor, p)
	case pb.SettingKind_SETTING_KIND_SCHEDULE:
		err = a.setSchedule(tenant, c.Actor, p)
	case pb.SettingKind_SETTING_KIND_PREFERENCES:
		err = a.setPreferences(tenant, p)
	case pb.SettingKind_SETTING_KIND_SECRET:
		err = a.setSecret(tenant, p)
	default:
		err = problem.New(problem.Unsupported, "a kind of setting is unknown to this build")
	}
	if err != nil {
		return Answer{Err: err}
	}
	a.event(model.Event{
		Type: logformat.SettingKinds.Word(p.Kind) + ".changed", Tenant: c.Tenant, Subject: p.Name,
		Status: logformat.SettingOrders.Word(p.Order), Actor: c.Actor,
	})
	return Answer{Subject: p.Name}
}

func unknownOrder(p *pb.PutSetting) error {
	return problem.New(problem.Unsupported, "%s %s takes no such order", logformat.SettingKinds.Word(p.Kind), p.Name)
}

func conflict(format string, args ...any) error {
	return problem.New(problem.Conflict, format, args...)
}

func absent(format string, args ...any) error {
	return problem.New(problem.NotFound, format, args...)
}

func (a runSettings) setProfile(tenant string, p *pb.PutSetting) error {
	ref := profile.RefOf(tenant, p.Name)
	if ref == profile.NativeRef {
		return conflict("profile %s is always there and cannot be changed", ref)
	}
	have := table.Get[table.ProfileRow](a.txn, table.Profiles, "id", tenant, p.Name)
	if have == nil && p.Order != pb.SettingOrder_SETTING_ORDER_PUT && p.Order != pb.SettingOrder_SETTING_ORDER_CREATE {
		return absent("there is no profile %s", ref)
	}
	next := &table.ProfileRow{Tenant: tenant}
	switch p.Order {
	case pb.SettingOrder_SETTING_ORDER_PUT, pb.SettingOrder_SETTING_ORDER_CREATE:
		if have != nil && p.Order == pb.SettingOrder_SETTING_ORDER_CREATE {
			return conflict("profile %s exists", ref)
		}
		body, err := logformat.DecodeProfile(p.GetProfile())
		if err != nil {
			return problem.New(problem.Unsupported, "profile: %w", err)
		}
		next.Profile = *body
		if err := a.document(tenant, table.CountProfiles, p.Name, proto.Size(p.GetProfile()), have == nil, bytesOf(have)); err != nil {
			return err
		}
		next.Name, next.Status, next.Created = p.Name, profile.Enabled, a.now/1000
		if have != nil {
			next.Status, next.Created = have.Status, have.Created
		}
	case pb.SettingOrder_SETTING_ORDER_ENABLE, pb.SettingOrder_SETTING_ORDER_DISABLE:
		*next = *have
		status := map[pb.SettingOrder]string{pb.SettingOrder_SETTING_ORDER_ENABLE: profile.Enabled,
			pb.SettingOrder_SETTING_ORDER_DISABLE: profile.Disabled}[p.Order]
		if have.Status == status {
			return conflict("profile %s is %s already", ref, status)
		}
		next.Status = status
	case pb.SettingOrder_SETTING_ORDER_DELETE:
		if err := a.mayDelete(ref, tenant, have); err != nil {
			return err
		}
		if u := table.Get[table.UsageRow](a.txn, table.Usages, "id", tenant, table.UsedByProfile, p.Name); u != nil {
			a.remove(table.Usages, u)
		}
		a.remove(table.Profiles, have)
		return nil
	default:
		return unknownOrder(p)
	}
	next.Scope, next.Version = ref.Scope, a.index
	a.put(table.Profiles, next)
	return nil
}

// mayDelete returns the first obstacle to a profile's deletion: the profile is enabled, then its
// assignments, then the runs that use it (docs/spec/profiles.md §6).
func (a runSettings) mayDelete(ref profile.Ref, tenant string, p *table.ProfileRow) error {
	if p.Status == profile.Enabled {
		return conflict("profile %s is enabled: disable it first", ref)
	}
	if to := a.view().Assignments(tenant, ref); len(to) > 0 {
		return conflict("profile %s is assigned to %s%s: assign another first", ref, to[0], more(len(to)))
	}
	if runs := table.List[profile.Run](a.txn, table.Runs, "up", tenant, p.Name); len(runs) > 0 {
		return conflict("profile %s is in use by run %s of program %s%s: wait for it, or stop it", ref, runs[0].ID, runs[0].Program.Name,
			more(len(runs)))
	}
	return nil
}

func more(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n-1)
}

// mayAssign checks that settings may name their profile.
func (a runSettings) mayAssign(tenant string, properties map[string]string) error {
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

// keptVersions is the number of versions of a program that are kept.
const keptVersions = 50

func (a runSettings) setProgram(tenant, actor string, p *pb.PutSetting) error {
	have := table.LatestProgram(a.txn, tenant, p.Name)
	switch {
	case tenant == "":
		return problem.New(problem.Unsupported, "programs belong to tenants")
	case p.Order == pb.SettingOrder_SETTING_ORDER_CREATE && have != nil:
		return conflict("program %s exists, at version %d", p.Name, have.Version)
	case p.Order == pb.SettingOrder_SETTING_ORDER_PUT || p.Order == pb.SettingOrder_SETTING_ORDER_CREATE:
		next := &table.ProgramRow{Tenant: tenant}
		body, err := logformat.DecodeProgram(p.GetProgram())
		if err != nil {
			return problem.New(problem.Unsupported, "program: %w", err)
		}
		kept := keptVersions
		if n := a.limit(tenant, model.LimitVersions); n > 0 {
			kept = min(kept, int(n))
		}
		surplus := table.List[table.ProgramRow](a.txn, table.Programs, "id_prefix", tenant, p.Name)
		surplus = surplus[:max(len(surplus)+1-kept, 0)]
		if err := a.document(tenant, table.KindProgram, p.Name, proto.Size(p.GetProgram()), have == nil, bytesOf(surplus...)); err != nil {
			return err
		}
		next.Program = *body
		next.Author = actor
		if next.Name, next.Version = p.Name, 1; have != nil {
			next.Version = have.Version + 1
		}
		if p.NumbersContinue {
			next.Version = a.nextNumber(tenant, table.KindProgram, p.Name, next.Version)
		}
		a.put(table.Programs, next)
		for _, old := range surplus {
			a.remove(table.Programs, old)
		}
		return nil
	case p.Order != pb.SettingOrder_SETTING_ORDER_DELETE:
		return unknownOrder(p)
	case have == nil:
		return absent("there is no program %q", p.Name)
	}
	if s := table.List[profile.Schedule](a.txn, table.Schedules, "program", tenant, p.Name); len(s) > 0 {
		return conflict("program %s has the schedule %s%s: delete that first", p.Name, s[0].Name, more(len(s)))
	}
	if p.NumbersContinue {
		a.retire(tenant, table.KindProgram, p.Name, have.Version)
	}
	for _, old := range table.List[table.ProgramRow](a.txn, table.Programs, "id_prefix", tenant, p.Name) {
		a.remove(table.Programs, old)
	}
	if prefs := table.Get[profile.Settings](a.txn, table.Preferences, "id", tenant, p.Name); prefs != nil {
		a.remove(table.Preferences, prefs)
	}
	if u := table.Get[table.UsageRow](a.txn, table.Usages, "id", tenant, table.UsedByProgram, p.Name); u != nil {
		a.remove(table.Usages, u)
	}
	return nil
}

func (a runSettings) setSchedule(tenant, actor string, p *pb.PutSetting) error {
	have := table.Get[profile.Schedule](a.txn, table.Schedules, "id", tenant, p.Name)
	if have == nil && p.Order != pb.SettingOrder_SETTING_ORDER_PUT && p.Order != pb.SettingOrder_SETTING_ORDER_CREATE {
		return absent("there is no schedule %q", p.Name)
	}
	next := &profile.Schedule{}
	switch p.Order {
	case pb.SettingOrder_SETTING_ORDER_PUT, pb.SettingOrder_SETTING_ORDER_CREATE:
		if have != nil && p.Order == pb.SettingOrder_SETTING_ORDER_CREATE {
			return conflict("schedule %s exists", p.Name)
		}
		var err error
		if next, err = logformat.DecodeSchedule(p.GetSchedule()); err != nil {
			return problem.New(problem.Unsupported, "schedule: %w", err)
		}
		if table.LatestProgram(a.txn, tenant, next.Program) == nil {
			return absent("there is no program %q", next.Program)
		}
		if err := a.document(tenant, table.CountSchedules, p.Name, proto.Size(p.GetSchedule()), have == nil, bytesOf(have)); err != nil {
			return err
		}
		if err := a.mayAssign(tenant, next.Properties); err != nil {
			return err
		}
		// A schedule starts no runs for times before it was made.
		next.Name, next.Status, next.Last, next.Actor = p.Name, profile.Enabled, a.now, actor
		if have != nil {
			next.Status, next.Skipped, next.LastRun = have.Status, have.Skipped, have.LastRun
			if have.Cron == next.Cron && have.TimeZone == next.TimeZone {
				next.Last, next.Waits = have.Last, have.Waits
			}
			if have.Status == profile.SuspendedSchedule { // for the user who writes it now
				next.Status, next.Last, next.Waits = profile.Enabled, a.now, 0
			}
		}
	case pb.SettingOrder_SETTING_ORDER_ENABLE, pb.SettingOrder_SETTING_ORDER_DISABLE:
		*next = *have
		status := map[pb.SettingOrder]string{pb.SettingOrder_SETTING_ORDER_ENABLE: profile.Enabled,
			pb.SettingOrder_SETTING_ORDER_DISABLE: profile.Disabled}[p.Order]
		if have.Status == status {
			return conflict("schedule %s is %s already", p.Name, status)
		}
		next.Status, next.Waits = status, 0
		if p.Order == pb.SettingOrder_SETTING_ORDER_ENABLE {
			next.Last = a.now // runs that were due meanwhile are skipped
			if have.Status == profile.SuspendedSchedule {
				next.Message = ""
			}
		}
	case pb.SettingOrder_SETTING_ORDER_DELETE:
		a.remove(table.Schedules, have)
		a.batch.Schedules = true
		return nil
	default:
		return unknownOrder(p)
	}
	next.Tenant, next.Version = tenant, a.index
	a.put(table.Schedules, next)
	a.batch.Schedules = true
	return nil
}

func (a runSettings) setPreferences(tenant string, p *pb.PutSetting) error {
	have := table.Get[profile.Settings](a.txn, table.Preferences, "id", tenant, p.Name)
	if p.Order == pb.SettingOrder_SETTING_ORDER_DELETE {
		if have == nil {
			return absent("there are no such preferences")
		}
		a.remove(table.Preferences, have)
		return nil
	}
	next := &profile.Settings{Tenant: tenant, Program: p.Name, Version: a.index, Properties: p.GetPreferences().GetProperties()}
	if next.Properties == nil {
		next.Properties = map[string]string{}
	}
	if p.Name != "" && table.LatestProgram(a.txn, tenant, p.Name) == nil {
		return absent("there is no program %q", p.Name)
	}
	if err := a.mayAssign(tenant, next.Properties); err != nil {
		return err
	}
	if err := a.document(tenant, "preferences", p.Name, proto.Size(p.GetPreferences()), false, bytesOf(have)); err != nil {
		return err
	}
	a.put(table.Preferences, next)
	return nil
}

func (a runSettings) setSecret(tenant string, p *pb.PutSetting) error {
	have := table.Get[table.SecretRow](a.txn, table.Secrets, "id", tenant, p.Name)
	if p.Order == pb.SettingOrder_SETTING_ORDER_DELETE {
		if have == nil {
			return absent("there is no secret %q", p.Name)
		}
		a.remove(table.Secrets, have)
		a.sealed().dropOf(have)
		return nil
	}
	next := &table.SecretRow{Tenant: tenant, Name: p.Name, Value: string(p.GetSecret()), UsableBy: p.UsableBy}
	bytes := len(next.Value)
	if v := p.GetSealed(); v != nil {
		if have != nil && have.ID != "" && have.ID != v.Id {
			return problem.New(problem.Stale, "secret %q was deleted and written again meanwhile", p.Name)
		}
		if err := a.sealed().follows(tenant, v); err != nil {
			return err
		}
		next.ID, next.Version, bytes = v.Id, v.Version, len(v.Sealed)
	}
	if p.KeepUsers && have != nil {
		next.UsableBy = have.UsableBy
	}
	if have == nil {
		if err := a.roomForOne(tenant, model.LimitSecrets); err != nil {
			return err
		}
	}
	if err := a.document(tenant, "secrets", p.Name, bytes, false, bytesOf(have)+bytesOf(a.sealed().of(have))); err != nil {
		return err
	}
	a.sealed().dropOf(have)
	if v := p.GetSealed(); v != nil {
		a.sealed().putValue(tenant, v)
	}
	a.put(table.Secrets, next)
	return nil
}

// profile finds a profile as a tenant sees it, or nil.
func (a runSettings) profile(ref profile.Ref, tenant string) *profile.Profile {
	if p, ok := a.view().Profile(tenant, ref); ok {
		return &p
	}
	return nil
}
