package logformat

import (
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/rpc/proto/record"
)

// EncodeSite returns the message of a site's record.
func EncodeSite(x *site.Record) (*record.Site, error) { return encode(x, (*encoder).site) }

// DecodeSite is the inverse of EncodeSite. It fails if the message is missing or JSON in it is
// damaged.
func DecodeSite(m *record.Site) (*site.Record, error) { return decode(m, (*decoder).site) }

func (e *encoder) site(x site.Record) *record.Site {
	return &record.Site{
		Tenant:     x.Tenant,
		Name:       x.Name,
		Epoch:      x.Epoch,
		Version:    x.Version,
		Generation: x.Generation,
		Next:       x.Next,
		Last:       x.Last,
		Switches:   list(x.Switches, e.siteSwitch),
		Hosts:      list(x.Hosts, e.host),
		Lives:      list(x.Lives, e.objectLife),
		Released:   list(x.Released, e.release),
		Deleting:   x.Deleting,
	}
}

func (d *decoder) site(m *record.Site) site.Record {
	if m == nil {
		return site.Record{}
	}
	return site.Record{
		Tenant:     m.Tenant,
		Name:       m.Name,
		Epoch:      m.Epoch,
		Version:    m.Version,
		Generation: m.Generation,
		Next:       m.Next,
		Last:       m.Last,
		Switches:   list(m.Switches, d.siteSwitch),
		Hosts:      list(m.Hosts, d.host),
		Lives:      list(m.Lives, d.objectLife),
		Released:   list(m.Released, d.release),
		Deleting:   m.Deleting,
	}
}

// EncodeSwitch returns the message of a switch of a site.
func EncodeSwitch(x *site.Switch) (*record.Switch, error) { return encode(x, (*encoder).siteSwitch) }

// DecodeSwitch is the inverse of EncodeSwitch. It fails if the message is missing or JSON in it is
// damaged.
func DecodeSwitch(m *record.Switch) (*site.Switch, error) { return decode(m, (*decoder).siteSwitch) }

func (e *encoder) siteSwitch(x site.Switch) *record.Switch {
	return &record.Switch{
		Hosts:   x.Hosts,
		Removed: numbers[int32](x.Removed),
		After:   numbers[int64](x.After),
		Added:   list(x.Added, e.placedObject),
		Done:    x.Done,
	}
}

func (d *decoder) siteSwitch(m *record.Switch) site.Switch {
	if m == nil {
		return site.Switch{}
	}
	return site.Switch{
		Group: site.Group{
			Hosts:   present(m.Hosts),
			Removed: numbered[object.ID](m.Removed),
			After:   numbered[int](m.After),
		},
		Added: list(m.Added, d.placedObject),
		Done:  m.Done,
	}
}

func (e *encoder) placedObject(x site.Placed) *record.PlacedObject {
	return &record.PlacedObject{
		Id:   int32(x.ID),
		Host: x.Host,
	}
}

func (d *decoder) placedObject(m *record.PlacedObject) site.Placed {
	if m == nil {
		return site.Placed{}
	}
	return site.Placed{
		ID:   object.ID(m.Id),
		Host: m.Host,
	}
}

// EncodeHost returns the message of a host of a site.
func EncodeHost(x *site.Host) (*record.Host, error) { return encode(x, (*encoder).host) }

// DecodeHost is the inverse of EncodeHost. It fails if the message is missing or JSON in it is
// damaged.
func DecodeHost(m *record.Host) (*site.Host, error) { return decode(m, (*decoder).host) }

func (e *encoder) host(x site.Host) *record.Host {
	return &record.Host{
		Name:    x.Name,
		Agent:   x.Agent,
		Process: x.Process,
	}
}

func (d *decoder) host(m *record.Host) site.Host {
	if m == nil {
		return site.Host{}
	}
	return site.Host{
		Name:    m.Name,
		Agent:   m.Agent,
		Process: m.Process,
	}
}

func (e *encoder) objectLife(x site.Life) *record.ObjectLife {
	return &record.ObjectLife{
		Host: x.Host,
		Inc:  x.Inc,
	}
}

func (d *decoder) objectLife(m *record.ObjectLife) site.Life {
	if m == nil {
		return site.Life{}
	}
	return site.Life{
		Host: m.Host,
		Inc:  m.Inc,
	}
}

func (e *encoder) release(x site.Release) *record.Release {
	return &record.Release{
		Id:     int32(x.ID),
		Inc:    x.Inc,
		Actor:  x.Actor,
		Reason: x.Reason,
		Time:   x.Time,
	}
}

func (d *decoder) release(m *record.Release) site.Release {
	if m == nil {
		return site.Release{}
	}
	return site.Release{
		ID:     object.ID(m.Id),
		Inc:    m.Inc,
		Actor:  m.Actor,
		Reason: m.Reason,
		Time:   m.Time,
	}
}

// EncodeGeneration returns the message of a generation of a site.
func EncodeGeneration(x *site.Generation) (*record.Generation, error) {
	return encode(x, (*encoder).generation)
}

// DecodeGeneration is the inverse of EncodeGeneration. It fails if the message is missing or JSON
// in it is damaged.
func DecodeGeneration(m *record.Generation) (*site.Generation, error) {
	return decode(m, (*decoder).generation)
}

func (e *encoder) generation(x site.Generation) *record.Generation {
	return &record.Generation{
		Tenant:    x.Tenant,
		Site:      x.Site,
		Number:    x.Number,
		Document:  x.Document,
		ObjectIds: numbers[int32](x.IDs),
		Time:      x.Time,
		Actor:     x.Actor,
		Reverts:   x.Reverts,
	}
}

func (d *decoder) generation(m *record.Generation) site.Generation {
	if m == nil {
		return site.Generation{}
	}
	return site.Generation{
		Tenant:   m.Tenant,
		Site:     m.Site,
		Number:   m.Number,
		Document: m.Document,
		IDs:      numbered[object.ID](m.ObjectIds),
		Time:     m.Time,
		Actor:    m.Actor,
		Reverts:  m.Reverts,
	}
}
