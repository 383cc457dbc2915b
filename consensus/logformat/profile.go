package logformat

import (
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/proto/record"
)

// EncodeProfile returns the message of a profile.
func EncodeProfile(x *profile.Profile) (*record.Profile, error) { return encode(x, (*encoder).profile) }

// DecodeProfile is the inverse of EncodeProfile. It fails if the message is missing or JSON in it
// is damaged.
func DecodeProfile(m *record.Profile) (*profile.Profile, error) { return decode(m, (*decoder).profile) }

func (e *encoder) profile(x profile.Profile) *record.Profile {
	return &record.Profile{
		Name:               x.Name,
		Label:              x.Label,
		Description:        x.Description,
		Provisioner:        e.provisioner(x.Provisioner),
		KeepAlive:          e.keepAlive(x.KeepAlive),
		Timeout:            int64(x.Timeout),
		DeprovisionTimeout: int64(x.DeprovisionTimeout),
		Retries:            int64(x.Retries),
		Limits:             e.limits(x.Limits),
		Scope:              x.Scope,
		Status:             x.Status,
		Created:            x.Created,
		Version:            x.Version,
	}
}

func (d *decoder) profile(m *record.Profile) profile.Profile {
	if m == nil {
		return profile.Profile{}
	}
	return profile.Profile{
		Name:               m.Name,
		Label:              m.Label,
		Description:        m.Description,
		Provisioner:        d.provisioner(m.Provisioner),
		KeepAlive:          d.keepAlive(m.KeepAlive),
		Timeout:            model.Millis(m.Timeout),
		DeprovisionTimeout: model.Millis(m.DeprovisionTimeout),
		Retries:            int(m.Retries),
		Limits:             d.limits(m.Limits),
		Scope:              m.Scope,
		Status:             m.Status,
		Created:            m.Created,
		Version:            m.Version,
	}
}

func (e *encoder) provisioner(x profile.Provisioner) *record.Provisioner {
	return &record.Provisioner{
		Name:       x.Name,
		Properties: list(x.Properties, e.property),
	}
}

func (d *decoder) provisioner(m *record.Provisioner) profile.Provisioner {
	if m == nil {
		return profile.Provisioner{}
	}
	return profile.Provisioner{
		Name:       m.Name,
		Properties: list(m.Properties, d.property),
	}
}

func (e *encoder) property(x profile.Property) *record.Property {
	return &record.Property{
		Name:       x.Name,
		Value:      x.Value,
		Editable:   clone(x.Editable),
		IsEditable: clone(x.IsEditable),
		Range:      e.bounds(x.Range),
	}
}

func (e *encoder) bounds(x *profile.Range) *record.Range {
	if x == nil {
		return nil
	}
	return &record.Range{Min: clone(x.Min), Max: clone(x.Max)}
}

func (d *decoder) property(m *record.Property) profile.Property {
	if m == nil {
		return profile.Property{}
	}
	return profile.Property{
		Name:       m.Name,
		Value:      m.Value,
		Editable:   clone(m.Editable),
		IsEditable: clone(m.IsEditable),
		Range:      d.bounds(m.Range),
	}
}

func (d *decoder) bounds(m *record.Range) *profile.Range {
	if m == nil {
		return nil
	}
	return &profile.Range{Min: clone(m.Min), Max: clone(m.Max)}
}

func (e *encoder) keepAlive(x profile.KeepAlive) *record.KeepAlive {
	return &record.KeepAlive{
		Failed: int64(x.Failed),
		Killed: int64(x.Killed),
	}
}

func (d *decoder) keepAlive(m *record.KeepAlive) profile.KeepAlive {
	if m == nil {
		return profile.KeepAlive{}
	}
	return profile.KeepAlive{
		Failed: model.Millis(m.Failed),
		Killed: model.Millis(m.Killed),
	}
}

func (e *encoder) limits(x profile.Limits) *record.Limits {
	return &record.Limits{
		Runs:      wide(x.Runs),
		Launching: wide(x.Launching),
	}
}

func (d *decoder) limits(m *record.Limits) profile.Limits {
	if m == nil {
		return profile.Limits{}
	}
	return profile.Limits{
		Runs:      narrow(m.Runs),
		Launching: narrow(m.Launching),
	}
}

// EncodeProgram returns the message of a program.
func EncodeProgram(x *profile.Program) (*record.Program, error) { return encode(x, (*encoder).program) }

// DecodeProgram is the inverse of EncodeProgram. It fails if the message is missing or JSON in it
// is damaged.
func DecodeProgram(m *record.Program) (*profile.Program, error) { return decode(m, (*decoder).program) }

func (e *encoder) program(x profile.Program) *record.Program {
	return &record.Program{
		Name:        x.Name,
		Label:       x.Label,
		Description: x.Description,
		Steps:       list(x.Steps, e.programStep),
		Timeout:     int64(x.Timeout),
		Requires:    list(x.Requires, e.programNeeds),
		Version:     int64(x.Version),
		Author:      x.Author,
	}
}

func (d *decoder) program(m *record.Program) profile.Program {
	if m == nil {
		return profile.Program{}
	}
	return profile.Program{
		Name:        m.Name,
		Label:       m.Label,
		Description: m.Description,
		Steps:       listed(m.Steps, d.programStep),
		Timeout:     model.Millis(m.Timeout),
		Requires:    list(m.Requires, d.programNeeds),
		Version:     int(m.Version),
		Author:      m.Author,
	}
}

func (e *encoder) programStep(x profile.Step) *record.ProgramStep {
	return &record.ProgramStep{
		Name:      x.Name,
		On:        x.On,
		Script:    x.Script,
		Command:   x.Command,
		Args:      x.Args,
		Arguments: x.Arguments,
		Env:       x.Env,
		Files:     x.Files,
		Timeout:   int64(x.Timeout),
		ExitCodes: numbers[int64](x.ExitCodes),
	}
}

func (d *decoder) programStep(m *record.ProgramStep) profile.Step {
	if m == nil {
		return profile.Step{}
	}
	return profile.Step{
		Name:      m.Name,
		On:        m.On,
		Script:    m.Script,
		Command:   m.Command,
		Args:      m.Args,
		Arguments: m.Arguments,
		Env:       m.Env,
		Files:     m.Files,
		Timeout:   model.Millis(m.Timeout),
		ExitCodes: numbers[int](m.ExitCodes),
	}
}

func (e *encoder) programNeeds(x profile.ProgramNeeds) *record.ProgramNeeds {
	return &record.ProgramNeeds{
		Plugin: x.Plugin,
		Needs:  list(x.Needs, e.capability),
	}
}

func (d *decoder) programNeeds(m *record.ProgramNeeds) profile.ProgramNeeds {
	if m == nil {
		return profile.ProgramNeeds{}
	}
	return profile.ProgramNeeds{
		Plugin: m.Plugin,
		Needs:  listed(m.Needs, d.capability),
	}
}

func (e *encoder) capability(x profile.Capability) *record.Capability {
	return &record.Capability{
		Kind: x.Kind,
		Name: x.Name,
	}
}

func (d *decoder) capability(m *record.Capability) profile.Capability {
	if m == nil {
		return profile.Capability{}
	}
	return profile.Capability{
		Kind: m.Kind,
		Name: m.Name,
	}
}

// EncodeSchedule returns the message of a schedule.
func EncodeSchedule(x *profile.Schedule) (*record.Schedule, error) {
	return encode(x, (*encoder).schedule)
}

// DecodeSchedule is the inverse of EncodeSchedule. It fails if the message is missing or JSON in it
// is damaged.
func DecodeSchedule(m *record.Schedule) (*profile.Schedule, error) {
	return decode(m, (*decoder).schedule)
}

func (e *encoder) schedule(x profile.Schedule) *record.Schedule {
	return &record.Schedule{
		Name:          x.Name,
		Description:   x.Description,
		Program:       x.Program,
		Cron:          x.Cron,
		TimeZone:      x.TimeZone,
		Concurrency:   x.Concurrency,
		MaxRuns:       int64(x.MaxRuns),
		CatchUp:       x.CatchUp,
		CatchUpWithin: int64(x.CatchUpWithin),
		Properties:    x.Properties,
		Arguments:     x.Arguments,
		Tenant:        x.Tenant,
		Status:        x.Status,
		Actor:         x.Actor,
		Last:          x.Last,
		Waits:         x.Waits,
		Skipped:       x.Skipped,
		LastRun:       x.LastRun,
		Message:       x.Message,
		Version:       x.Version,
	}
}

func (d *decoder) schedule(m *record.Schedule) profile.Schedule {
	if m == nil {
		return profile.Schedule{}
	}
	return profile.Schedule{
		Name:          m.Name,
		Description:   m.Description,
		Program:       m.Program,
		Cron:          m.Cron,
		TimeZone:      m.TimeZone,
		Concurrency:   m.Concurrency,
		MaxRuns:       int(m.MaxRuns),
		CatchUp:       m.CatchUp,
		CatchUpWithin: model.Millis(m.CatchUpWithin),
		Properties:    m.Properties,
		Arguments:     m.Arguments,
		Tenant:        m.Tenant,
		Status:        m.Status,
		Actor:         m.Actor,
		Last:          m.Last,
		Waits:         m.Waits,
		Skipped:       m.Skipped,
		LastRun:       m.LastRun,
		Message:       m.Message,
		Version:       m.Version,
	}
}

// EncodePreferences returns the message of preferences.
func EncodePreferences(x *profile.Settings) (*record.Preferences, error) {
	return encode(x, (*encoder).preferences)
}

// DecodePreferences is the inverse of EncodePreferences. It fails if the message is missing or JSON
// in it is damaged.
func DecodePreferences(m *record.Preferences) (*profile.Settings, error) {
	return decode(m, (*decoder).preferences)
}

func (e *encoder) preferences(x profile.Settings) *record.Preferences {
	return &record.Preferences{
		Tenant:     x.Tenant,
		Program:    x.Program,
		Properties: x.Properties,
		Version:    x.Version,
	}
}

func (d *decoder) preferences(m *record.Preferences) profile.Settings {
	if m == nil {
		return profile.Settings{}
	}
	return profile.Settings{
		Tenant:     m.Tenant,
		Program:    m.Program,
		Properties: presentMap(m.Properties),
		Version:    m.Version,
	}
}

// EncodeUsage returns the message of usage.
func EncodeUsage(x *profile.Usage) (*record.Usage, error) { return encode(x, (*encoder).usage) }

// DecodeUsage is the inverse of EncodeUsage. It fails if the message is missing or JSON in it is
// damaged.
func DecodeUsage(m *record.Usage) (*profile.Usage, error) { return decode(m, (*decoder).usage) }

func (e *encoder) usage(x profile.Usage) *record.Usage {
	return &record.Usage{
		Runs:               x.Runs,
		Completed:          x.Completed,
		Failed:             x.Failed,
		Killed:             x.Killed,
		Rejected:           x.Rejected,
		ProvisioningFailed: x.ProvisioningFailed,
		NodeMinutes:        x.NodeMinutes,
		Provisioned:        x.Provisioned,
		ProvisioningMillis: x.ProvisioningMillis,
		NodesUp:            x.NodesUp,
		Active:             x.Active,
	}
}

func (d *decoder) usage(m *record.Usage) profile.Usage {
	if m == nil {
		return profile.Usage{}
	}
	return profile.Usage{
		Runs:               m.Runs,
		Completed:          m.Completed,
		Failed:             m.Failed,
		Killed:             m.Killed,
		Rejected:           m.Rejected,
		ProvisioningFailed: m.ProvisioningFailed,
		NodeMinutes:        m.NodeMinutes,
		Provisioned:        m.Provisioned,
		ProvisioningMillis: m.ProvisioningMillis,
		NodesUp:            m.NodesUp,
		Active:             m.Active,
	}
}
