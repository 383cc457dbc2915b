package logformat

import (
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/proto/record"
)

// EncodeTenant returns the message of a tenant.
func EncodeTenant(x *model.Tenant) (*record.Tenant, error) { return encode(x, (*encoder).tenant) }

// DecodeTenant is the inverse of EncodeTenant. It fails if the message is missing or JSON in it is
// damaged.
func DecodeTenant(m *record.Tenant) (*model.Tenant, error) { return decode(m, (*decoder).tenant) }

func (e *encoder) tenant(x model.Tenant) *record.Tenant {
	return &record.Tenant{
		Name:               x.Name,
		Description:        x.Description,
		Weight:             int64(x.Weight),
		MaxClusters:        int64(x.MaxClusters),
		MaxNodes:           int64(x.MaxNodes),
		MaxOperations:      int64(x.MaxOperations),
		MaxRuns:            int64(x.MaxRuns),
		MaxDefinitions:     int64(x.MaxDefinitions),
		MaxVersions:        int64(x.MaxVersions),
		MaxDocumentBytes:   x.MaxDocumentBytes,
		MaxDefinitionBytes: x.MaxDefinitionBytes,
		MaxPolicies:        int64(x.MaxPolicies),
		MaxSecrets:         int64(x.MaxSecrets),
		MaxTokens:          int64(x.MaxTokens),
		MaxUsers:           int64(x.MaxUsers),
		MaxResources:       int64(x.MaxResources),
		MaxResourceBytes:   x.MaxResourceBytes,
		MaxRequests:        int64(x.MaxRequests),
		MaxRequestIds:      int64(x.MaxRequestIDs),
		MaxStreams:         int64(x.MaxStreams),
	}
}

func (d *decoder) tenant(m *record.Tenant) model.Tenant {
	if m == nil {
		return model.Tenant{}
	}
	return model.Tenant{
		Name:               m.Name,
		Description:        m.Description,
		Weight:             int(m.Weight),
		MaxClusters:        int(m.MaxClusters),
		MaxNodes:           int(m.MaxNodes),
		MaxOperations:      int(m.MaxOperations),
		MaxRuns:            int(m.MaxRuns),
		MaxDefinitions:     int(m.MaxDefinitions),
		MaxVersions:        int(m.MaxVersions),
		MaxDocumentBytes:   m.MaxDocumentBytes,
		MaxDefinitionBytes: m.MaxDefinitionBytes,
		MaxPolicies:        int(m.MaxPolicies),
		MaxSecrets:         int(m.MaxSecrets),
		MaxTokens:          int(m.MaxTokens),
		MaxUsers:           int(m.MaxUsers),
		MaxResources:       int(m.MaxResources),
		MaxResourceBytes:   m.MaxResourceBytes,
		MaxRequests:        int(m.MaxRequests),
		MaxStreams:         int(m.MaxStreams),
		MaxRequestIDs:      int(m.MaxRequestIds),
	}
}

// EncodeToken returns the message of a token.
func EncodeToken(x *model.Token) (*record.Token, error) { return encode(x, (*encoder).token) }

// DecodeToken is the inverse of EncodeToken. It fails if the message is missing or JSON in it is
// damaged.
func DecodeToken(m *record.Token) (*model.Token, error) { return decode(m, (*decoder).token) }

func (e *encoder) token(x model.Token) *record.Token {
	return &record.Token{
		Id:      x.ID,
		Actor:   x.Actor,
		Tenant:  x.Tenant,
		Role:    string(x.Role),
		Created: x.Created,

		Session: x.Session, Parent: x.Parent, Expires: x.Expires, Renewable: x.Renewable, Description: x.Description,
		Sources: x.Sources, Used: x.Used,
	}
}

func (d *decoder) token(m *record.Token) model.Token {
	if m == nil {
		return model.Token{}
	}
	return model.Token{
		ID:      m.Id,
		Actor:   m.Actor,
		Tenant:  m.Tenant,
		Role:    model.Role(m.Role),
		Created: m.Created,

		Session: m.Session, Parent: m.Parent, Expires: m.Expires, Renewable: m.Renewable, Description: m.Description,
		Sources: m.Sources, Used: m.Used,
	}
}

// EncodeUser returns the message of a user.
func EncodeUser(x *model.User) (*record.User, error) { return encode(x, (*encoder).user) }

// DecodeUser is the inverse of EncodeUser. It fails if the message is missing.
func DecodeUser(m *record.User) (*model.User, error) { return decode(m, (*decoder).user) }

func (e *encoder) user(x model.User) *record.User {
	return &record.User{
		Name: x.Name, Tenant: x.Tenant, Method: x.Method, Role: string(x.Role), Groups: x.Groups, Description: x.Description,
		Disabled: x.Disabled, Created: x.Created, Deleted: x.Deleted, Set: x.PasswordSet, Subject: x.Subject, Left: x.Left,
	}
}

func (d *decoder) user(m *record.User) model.User {
	if m == nil {
		return model.User{}
	}
	return model.User{
		Name: m.Name, Tenant: m.Tenant, Method: m.Method, Role: model.Role(m.Role), Groups: m.Groups, Description: m.Description,
		Disabled: m.Disabled, Created: m.Created, Deleted: m.Deleted, PasswordSet: m.Set, Subject: m.Subject, Left: m.Left,
	}
}

// EncodeGrant returns the message of a grant.
func EncodeGrant(x *model.Grant) (*record.Grant, error) { return encode(x, (*encoder).grant) }

// DecodeGrant is the inverse of EncodeGrant. It fails if the message is missing.
func DecodeGrant(m *record.Grant) (*model.Grant, error) { return decode(m, (*decoder).grant) }

func (e *encoder) grant(x model.Grant) *record.Grant {
	return &record.Grant{
		Id: x.ID, Tenant: x.Tenant, Granter: x.Granter, To: x.To, Actions: x.Actions, Resource: x.Resource, Name: x.Name, Until: x.Until,
		Created: x.Created,
	}
}

func (d *decoder) grant(m *record.Grant) model.Grant {
	if m == nil {
		return model.Grant{}
	}
	return model.Grant{
		ID: m.Id, Tenant: m.Tenant, Granter: m.Granter, To: m.To, Actions: m.Actions, Resource: m.Resource, Name: m.Name, Until: m.Until,
		Created: m.Created,
	}
}

// EncodeJoinToken returns the message of a join token.
func EncodeJoinToken(x *roster.JoinToken) (*record.JoinToken, error) {
	return encode(x, (*encoder).joinToken)
}

// DecodeJoinToken is the inverse of EncodeJoinToken. It fails if the message is missing.
func DecodeJoinToken(m *record.JoinToken) (*roster.JoinToken, error) {
	return decode(m, (*decoder).joinToken)
}

func (e *encoder) joinToken(x roster.JoinToken) *record.JoinToken {
	return &record.JoinToken{
		Id: x.ID, Hash: x.Hash, Role: x.Role, Zone: x.Zone, Names: x.Names, Api: x.API, Uses: int64(x.Uses), Expires: x.Expires,
		Created: x.Created, Creator: x.Creator,
	}
}

func (d *decoder) joinToken(m *record.JoinToken) roster.JoinToken {
	if m == nil {
		return roster.JoinToken{}
	}
	return roster.JoinToken{
		ID: m.Id, Hash: m.Hash, Role: m.Role, Zone: m.Zone, Names: m.Names, API: m.Api, Uses: int(m.Uses), Expires: m.Expires,
		Created: m.Created, Creator: m.Creator,
	}
}

// EncodeRotation returns the message of a rotation.
func EncodeRotation(x *roster.Rotation) (*record.Rotation, error) {
	return encode(x, (*encoder).rotation)
}

// DecodeRotation is the inverse of EncodeRotation. It fails if the message is missing.
func DecodeRotation(m *record.Rotation) (*roster.Rotation, error) {
	return decode(m, (*decoder).rotation)
}

func (e *encoder) rotation(x roster.Rotation) *record.Rotation {
	return &record.Rotation{
		Kind: number(e, RotationKinds, x.Kind), Number: x.Number, Phase: number(e, RotationPhases, x.Phase), Full: x.Full, Actor: x.Actor,
		Begun: x.Begun, Since: x.Since, Index: x.Index, Key: x.MeshKey, Print: x.Print, Behind: x.Behind, NoBridge: x.NoBridge,
	}
}

func (d *decoder) rotation(m *record.Rotation) roster.Rotation {
	if m == nil {
		return roster.Rotation{}
	}
	return roster.Rotation{
		Kind: RotationKinds.Word(m.Kind), Number: m.Number, Phase: RotationPhases.Word(m.Phase), Full: m.Full, Actor: m.Actor,
		Begun: m.Begun, Since: m.Since, Index: m.Index, MeshKey: m.Key, Print: m.Print, Behind: m.Behind, NoBridge: m.NoBridge,
	}
}

// EncodeAgentIdentity returns the message of an agent's identity.
func EncodeAgentIdentity(x *roster.Identity) (*record.AgentIdentity, error) {
	return encode(x, (*encoder).agentIdentity)
}

// DecodeAgentIdentity is the inverse of EncodeAgentIdentity. It fails if the message is missing.
func DecodeAgentIdentity(m *record.AgentIdentity) (*roster.Identity, error) {
	return decode(m, (*decoder).agentIdentity)
}

func (e *encoder) agentIdentity(x roster.Identity) *record.AgentIdentity {
	return &record.AgentIdentity{
		Agent: x.Agent, Role: x.Role, Zone: x.Zone, Names: x.Names, Api: x.API, Keys: x.Keys, Token: x.Token, Admitted: x.Admitted,
		Removed: x.Removed, Issued: x.Issued,
	}
}

func (d *decoder) agentIdentity(m *record.AgentIdentity) roster.Identity {
	if m == nil {
		return roster.Identity{}
	}
	return roster.Identity{
		Agent: m.Agent, Role: m.Role, Zone: m.Zone, Names: m.Names, API: m.Api, Keys: m.Keys, Token: m.Token, Admitted: m.Admitted,
		Removed: m.Removed, Issued: m.Issued,
	}
}

// EncodeAgent returns the message of an agent.
func EncodeAgent(x *model.Agent) (*record.Agent, error) { return encode(x, (*encoder).agent) }

// DecodeAgent is the inverse of EncodeAgent. It fails if the message is missing or JSON in it is
// damaged.
func DecodeAgent(m *record.Agent) (*model.Agent, error) { return decode(m, (*decoder).agent) }

func (e *encoder) agent(x model.Agent) *record.Agent {
	return &record.Agent{
		Id:           x.ID,
		Name:         x.Name,
		PeerAddr:     x.PeerAddr,
		ApiAddr:      x.APIAddr,
		GossipAddr:   x.GossipAddr,
		Incarnation:  x.Incarnation,
		Build:        x.Build,
		FeatureLevel: x.FeatureLevel,
		Zone:         x.Zone,
		Class:        x.Class,
		Slots:        int64(x.Slots),
		Eligible:     x.Eligible,
		Session:      x.Session,
		Epoch:        x.Epoch,
		Alive:        x.Alive,
		Left:         x.Left,
		Plugins:      x.Plugins,
		Since:        x.Since,
	}
}

func (d *decoder) agent(m *record.Agent) model.Agent {
	if m == nil {
		return model.Agent{}
	}
	return model.Agent{
		ID:           m.Id,
		Name:         m.Name,
		PeerAddr:     m.PeerAddr,
		APIAddr:      m.ApiAddr,
		GossipAddr:   m.GossipAddr,
		Incarnation:  m.Incarnation,
		Build:        m.Build,
		FeatureLevel: m.FeatureLevel,
		Zone:         m.Zone,
		Class:        m.Class,
		Slots:        int(m.Slots),
		Eligible:     m.Eligible,
		Session:      m.Session,
		Epoch:        m.Epoch,
		Alive:        m.Alive,
		Left:         m.Left,
		Plugins:      m.Plugins,
		Since:        m.Since,
	}
}

// EncodePluginType returns the message of a plugin type.
func EncodePluginType(x *model.PluginType) (*record.PluginType, error) {
	return encode(x, (*encoder).pluginType)
}

// DecodePluginType is the inverse of EncodePluginType. It fails if the message is missing or JSON
// in it is damaged.
func DecodePluginType(m *record.PluginType) (*model.PluginType, error) {
	return decode(m, (*decoder).pluginType)
}

func (e *encoder) pluginType(x model.PluginType) *record.PluginType {
	return &record.PluginType{
		Name:          x.Name,
		Label:         x.Label,
		Description:   x.Description,
		Icon:          x.Icon,
		Version:       int64(x.Version),
		Author:        x.Author,
		HostExec:      x.HostExec,
		Class:         x.Class,
		Plugin:        x.Plugin,
		Protocol:      x.Protocol,
		Parameters:    e.pluginParameters(x.Parameters),
		ResourceTypes: table(x.ResourceTypes, e.resourceType),
		Actions:       x.Actions,
		Comparators:   x.Comparators,
		PerMachine:    x.PerMachine,
		Classname:     x.Classname,
	}
}

func (d *decoder) pluginType(m *record.PluginType) model.PluginType {
	if m == nil {
		return model.PluginType{}
	}
	return model.PluginType{
		Base: model.Base{
			Name:        m.Name,
			Label:       m.Label,
			Description: m.Description,
			Icon:        m.Icon,
			Version:     int(m.Version),
			Author:      m.Author,
			HostExec:    m.HostExec,
		},
		Class:         m.Class,
		Plugin:        m.Plugin,
		Protocol:      m.Protocol,
		Parameters:    d.pluginParameters(m.Parameters),
		ResourceTypes: table(m.ResourceTypes, d.resourceType),
		Actions:       m.Actions,
		Comparators:   m.Comparators,
		PerMachine:    m.PerMachine,
		Classname:     m.Classname,
	}
}

func (e *encoder) pluginParameters(x model.PluginParameters) *record.PluginParameters {
	return &record.PluginParameters{
		Admin: e.pluginFields(x.Admin),
		User:  e.pluginFields(x.User),
	}
}

func (d *decoder) pluginParameters(m *record.PluginParameters) model.PluginParameters {
	if m == nil {
		return model.PluginParameters{}
	}
	return model.PluginParameters{
		Admin: d.pluginFields(m.Admin),
		User:  d.pluginFields(m.User),
	}
}

func (e *encoder) pluginFields(x model.PluginFields) *record.PluginFields {
	return &record.PluginFields{
		Fields:   table(x.Fields, e.fieldSchema),
		Required: list(x.Required, names),
	}
}

func (d *decoder) pluginFields(m *record.PluginFields) model.PluginFields {
	if m == nil {
		return model.PluginFields{}
	}
	return model.PluginFields{
		Fields:   table(m.Fields, d.fieldSchema),
		Required: list(m.Required, namesOf),
	}
}

func (e *encoder) fieldSchema(x model.FieldSchema) *record.FieldSchema {
	return &record.FieldSchema{
		Label:      x.Label,
		Type:       x.Type,
		Tip:        x.Tip,
		Options:    x.Options,
		Default:    e.optional(x.Default != nil, x.Default),
		Override:   x.Override,
		Sensitive:  x.Sensitive,
		Credential: x.Credential,
	}
}

func (d *decoder) fieldSchema(m *record.FieldSchema) model.FieldSchema {
	if m == nil {
		return model.FieldSchema{}
	}
	return model.FieldSchema{
		Label:      m.Label,
		Type:       m.Type,
		Tip:        m.Tip,
		Options:    m.Options,
		Default:    document[any](d, m.Default),
		Override:   m.Override,
		Sensitive:  m.Sensitive,
		Credential: m.Credential,
	}
}

func (e *encoder) resourceType(x model.ResourceType) *record.ResourceType {
	return &record.ResourceType{
		Format:      x.Format,
		Permissions: x.Permissions,
		Secret:      x.Secret,
	}
}

func (d *decoder) resourceType(m *record.ResourceType) model.ResourceType {
	if m == nil {
		return model.ResourceType{}
	}
	return model.ResourceType{
		Format:      m.Format,
		Permissions: m.Permissions,
		Secret:      m.Secret,
	}
}

// EncodePluginResource returns the message of a plugin resource.
func EncodePluginResource(x *model.PluginResource) (*record.PluginResource, error) {
	return encode(x, (*encoder).pluginResource)
}

// DecodePluginResource is the inverse of EncodePluginResource. It fails if the message is missing
// or JSON in it is damaged.
func DecodePluginResource(m *record.PluginResource) (*model.PluginResource, error) {
	return decode(m, (*decoder).pluginResource)
}

func (e *encoder) pluginResource(x model.PluginResource) *record.PluginResource {
	return &record.PluginResource{
		Tenant:   x.Tenant,
		Key:      e.resourceKey(x.ResourceKey),
		Last:     int64(x.Last),
		Versions: list(x.Versions, e.resourceVersion),
	}
}

func (d *decoder) pluginResource(m *record.PluginResource) model.PluginResource {
	if m == nil {
		return model.PluginResource{}
	}
	return model.PluginResource{
		Tenant:      m.Tenant,
		ResourceKey: d.resourceKey(m.Key),
		Last:        int(m.Last),
		Versions:    listed(m.Versions, d.resourceVersion),
	}
}

// EncodeResourceVersion returns the message of a resource's version.
func EncodeResourceVersion(x *model.ResourceVersion) (*record.ResourceVersion, error) {
	return encode(x, (*encoder).resourceVersion)
}

// DecodeResourceVersion is the inverse of EncodeResourceVersion. It fails if the message is missing
// or JSON in it is damaged.
func DecodeResourceVersion(m *record.ResourceVersion) (*model.ResourceVersion, error) {
	return decode(m, (*decoder).resourceVersion)
}

func (e *encoder) resourceVersion(x model.ResourceVersion) *record.ResourceVersion {
	return &record.ResourceVersion{
		Pin:    e.resourcePin(x.ResourcePin),
		Status: string(x.Status),
		Time:   x.Time,
		Actor:  x.Actor,
	}
}

func (d *decoder) resourceVersion(m *record.ResourceVersion) model.ResourceVersion {
	if m == nil {
		return model.ResourceVersion{}
	}
	return model.ResourceVersion{
		ResourcePin: d.resourcePin(m.Pin),
		Status:      model.ResourceStatus(m.Status),
		Time:        m.Time,
		Actor:       m.Actor,
	}
}

func (e *encoder) resourcePin(x model.ResourcePin) *record.ResourcePin {
	return &record.ResourcePin{
		Key:         e.resourceKey(x.ResourceKey),
		Version:     int64(x.Version),
		Sha256:      x.SHA256,
		Size:        x.Size,
		Format:      x.Format,
		Permissions: x.Permissions,
		Secret:      x.Secret,
	}
}

func (d *decoder) resourcePin(m *record.ResourcePin) model.ResourcePin {
	if m == nil {
		return model.ResourcePin{}
	}
	return model.ResourcePin{
		ResourceKey: d.resourceKey(m.Key),
		Version:     int(m.Version),
		SHA256:      m.Sha256,
		Size:        m.Size,
		Format:      m.Format,
		Permissions: m.Permissions,
		Secret:      m.Secret,
	}
}

// EncodeResourceKey returns the message of a resource's key.
func EncodeResourceKey(x *model.ResourceKey) (*record.ResourceKey, error) {
	return encode(x, (*encoder).resourceKey)
}

// DecodeResourceKey is the inverse of EncodeResourceKey. It fails if the message is missing or JSON
// in it is damaged.
func DecodeResourceKey(m *record.ResourceKey) (*model.ResourceKey, error) {
	return decode(m, (*decoder).resourceKey)
}

func (e *encoder) resourceKey(x model.ResourceKey) *record.ResourceKey {
	return &record.ResourceKey{
		Kind:   string(x.Kind),
		Plugin: x.Plugin,
		Type:   x.Type,
		Name:   x.Name,
	}
}

func (d *decoder) resourceKey(m *record.ResourceKey) model.ResourceKey {
	if m == nil {
		return model.ResourceKey{}
	}
	return model.ResourceKey{
		Kind:   model.Kind(m.Kind),
		Plugin: m.Plugin,
		Type:   m.Type,
		Name:   m.Name,
	}
}

// EncodeResourceSet returns the message of a resource set.
func EncodeResourceSet(x *model.ResourceSet) (*record.ResourceSet, error) {
	return encode(x, (*encoder).resourceSet)
}

// DecodeResourceSet is the inverse of EncodeResourceSet. It fails if the message is missing or JSON
// in it is damaged.
func DecodeResourceSet(m *record.ResourceSet) (*model.ResourceSet, error) {
	return decode(m, (*decoder).resourceSet)
}

func (e *encoder) resourceSet(x model.ResourceSet) *record.ResourceSet {
	return &record.ResourceSet{
		Tenant: x.Tenant,
		Number: x.Number,
		Pins:   list(x.Pins, e.resourcePin),
	}
}

func (d *decoder) resourceSet(m *record.ResourceSet) model.ResourceSet {
	if m == nil {
		return model.ResourceSet{}
	}
	return model.ResourceSet{
		Tenant: m.Tenant,
		Number: m.Number,
		Pins:   listed(m.Pins, d.resourcePin),
	}
}
