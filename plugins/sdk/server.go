package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/proto"
)

// encodeOutput returns an output as JSON, or nil for an empty one.
func encodeOutput(o *Output) ([]byte, error) {
	if o == nil || o.Hostname == "" && len(o.IPAddresses) == 0 && len(o.Result) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(o)
	if err != nil {
		return nil, Unknown(fmt.Errorf("the plugin's output cannot be encoded as JSON: %w", err))
	}
	return b, nil
}

func describe(d Describer) (*proto.DescribeResponse, error) {
	b, err := json.Marshal(d.Describe())
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the descriptor cannot be encoded as JSON: %v", err)
	}
	return &proto.DescribeResponse{Descriptor_: b}, nil
}

func validate(ctx context.Context, d Describer, req *proto.ValidateRequest) (*proto.ValidateResponse, error) {
	fields := map[string]any{}
	if len(req.Fields) > 0 {
		if err := json.Unmarshal(req.Fields, &fields); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "fields are not a JSON object: %v", err)
		}
	}
	faults := CheckFields(d.Describe(), Scope(req.Scope), fields)
	if v, ok := d.(Validator); ok {
		faults = append(faults, v.Validate(ctx, Scope(req.Scope), fields)...)
	}
	resp := &proto.ValidateResponse{}
	for _, f := range faults {
		resp.Faults = append(resp.Faults, &proto.FieldFault{Path: f.Path, Message: f.Message})
	}
	return resp, nil
}

func rank(ctx context.Context, d Describer, req *proto.RankRequest) (*proto.RankResponse, error) {
	c, ok := d.(Comparator)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "this plugin offers no comparator")
	}
	var q model.RankingQuestion
	if err := json.Unmarshal(req.Question, &q); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the ranking question cannot be decoded: %v", err)
	}
	r, err := c.Rank(ctx, q)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the ranking cannot be encoded as JSON: %v", err)
	}
	return &proto.RankResponse{Ranking: b}, nil
}

// providerServer serves a Provider.
type providerServer struct {
	proto.UnimplementedProviderServer
	impl    Provider
	process *lifetime
}

func (s *providerServer) Describe(context.Context, *proto.DescribeRequest) (*proto.DescribeResponse, error) {
	return describe(s.impl)
}

func (s *providerServer) Validate(ctx context.Context, req *proto.ValidateRequest) (*proto.ValidateResponse, error) {
	return validate(ctx, s.impl, req)
}

func (s *providerServer) Rank(ctx context.Context, req *proto.RankRequest) (*proto.RankResponse, error) {
	return rank(ctx, s.impl, req)
}

func listRequest(tenant, mesh, cluster string, fields []byte) (ListRequest, error) {
	r := ListRequest{Tenant: tenant, Mesh: mesh, Cluster: cluster}
	if len(fields) > 0 {
		if err := json.Unmarshal(fields, &r.Fields); err != nil {
			return r, status.Errorf(codes.InvalidArgument, "fields are not a JSON object: %v", err)
		}
	}
	return r, nil
}

// Remove removes one resource by its id.
func (s *providerServer) Remove(ctx context.Context, req *proto.RemoveRequest) (*proto.RemoveResponse, error) {
	impl, ok := s.impl.(Remover)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "this provider cannot remove a machine by its id")
	}
	r, err := listRequest(req.Tenant, req.Mesh, req.GetResource().GetCluster(), req.Fields)
	if err != nil {
		return nil, err
	}
	r.Resources = req.ResourcesDir
	x := req.GetResource()
	return &proto.RemoveResponse{}, impl.Remove(ctx, r,
		Resource{Cluster: x.GetCluster(), Node: x.GetNode(), Fence: x.GetFence(), ID: x.GetId()})
}

// listPage is the number of resources in one message.
const listPage = 256

func (s *providerServer) List(req *proto.ListRequest, stream grpc.ServerStreamingServer[proto.ListResponse]) error {
	r, err := listRequest(req.Tenant, req.Mesh, req.Cluster, req.Fields)
	if err != nil {
		return err
	}
	page := &proto.ListResponse{}
	err = s.impl.List(stream.Context(), r, func(x Resource) error {
		out, err := encodeOutput(x.Output)
		if err != nil {
			return err
		}
		page.Resources = append(page.Resources, &proto.Resource{Cluster: x.Cluster, Node: x.Node, Fence: x.Fence, Id: x.ID, Output: out})
		if len(page.Resources) < listPage {
			return nil
		}
		err = stream.Send(page)
		page = &proto.ListResponse{}
		return err
	})
	if err == nil && len(page.Resources) > 0 {
		err = stream.Send(page)
	}
	return err
}

func (s *providerServer) Execute(stream grpc.BidiStreamingServer[proto.ExecuteRequest, proto.ExecuteResponse]) error {
	return serveExecute(stream, s.process, s.do)
}

func (s *providerServer) do(ctx context.Context, p *proto.Task, t *Task) (*Output, bool, error) {
	switch p.Action {
	case "CREATE":
		if p.Observe {
			out, err := s.observe(ctx, t)
			if err == nil || !errors.Is(err, ErrNotFound) {
				return out, err == nil, err
			}
		}
		out, err := s.impl.Create(ctx, t)
		return out, false, err
	case "CONFIRM":
		out, err := s.impl.Confirm(ctx, t)
		return out, false, err
	case "DELETE":
		out, err := s.impl.Delete(ctx, t)
		return out, false, err
	case "CHECK":
		// The outcome is a success whether or not the machine exists; adopted reports which.
		_, err := s.observe(ctx, t)
		if errors.Is(err, ErrNotFound) {
			return nil, false, nil
		}
		return nil, err == nil, err
	}
	return nil, false, Fatal(fmt.Errorf("a provider has no action %s: it has CREATE, CONFIRM and DELETE", p.Action))
}

// observe finds the task's node, with Observe or else with List.
func (s *providerServer) observe(ctx context.Context, t *Task) (*Output, error) {
	if o, ok := s.impl.(Observer); ok {
		return o.Observe(ctx, t)
	}
	fields, err := t.Fields()
	if err != nil {
		return nil, err
	}
	var found *Resource
	err = s.impl.List(ctx, ListRequest{Tenant: t.Tenant, Mesh: t.Mesh, Cluster: t.Cluster, Fields: fields}, func(r Resource) error {
		if r.Cluster == t.Cluster && r.Node == t.Node {
			found = &r
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("observe the result of an earlier attempt: %w", err)
	}
	if found == nil {
		return nil, ErrNotFound
	}
	if found.Output == nil {
		found.Output = &Output{Result: map[string]any{"providerid": found.ID}}
	}
	return found.Output, nil
}

// automatorServer serves an Automator.
type automatorServer struct {
	proto.UnimplementedAutomatorServer
	impl    Automator
	process *lifetime
}

func (s *automatorServer) Describe(context.Context, *proto.DescribeRequest) (*proto.DescribeResponse, error) {
	return describe(s.impl)
}

func (s *automatorServer) Validate(ctx context.Context, req *proto.ValidateRequest) (*proto.ValidateResponse, error) {
	return validate(ctx, s.impl, req)
}

func (s *automatorServer) Rank(ctx context.Context, req *proto.RankRequest) (*proto.RankResponse, error) {
	return rank(ctx, s.impl, req)
}

func (s *automatorServer) Execute(stream grpc.BidiStreamingServer[proto.ExecuteRequest, proto.ExecuteResponse]) error {
	return serveExecute(stream, s.process, s.do)
}

func (s *automatorServer) do(ctx context.Context, p *proto.Task, t *Task) (*Output, bool, error) {
	switch p.Action {
	case "BOOTSTRAP":
		out, err := s.impl.Bootstrap(ctx, t)
		return out, false, err
	case "CHECK":
		done, out, err := s.impl.Check(ctx, t)
		if err == nil && !done {
			err = errors.New("the check reports that it is not done")
		}
		return out, false, err
	case "CREATE", "CONFIRM", "DELETE", "":
		return nil, false, Fatal(fmt.Errorf("an automator has no action %q", p.Action))
	}
	if p.Observe {
		done, out, err := s.impl.Check(ctx, t)
		if err != nil || done {
			return out, err == nil, err
		}
	}
	out, err := s.impl.Run(ctx, t)
	return out, false, err
}

// CheckFields checks values against a descriptor's fields of one scope: a required set must be
// complete, a selection must be one of its options, and a value must have its field's type. Unknown
// fields are ignored, as in the original Coopr (docs/spec/coopr.md 6.4).
func CheckFields(d model.PluginType, scope Scope, fields map[string]any) model.Faults {
	set := d.Parameters.Admin
	if scope == ScopeUser {
		set = d.Parameters.User
	}
	var faults model.Faults
	if len(set.Required) > 0 && !anyComplete(set.Required, fields) {
		alternatives := make([]string, len(set.Required))
		for i, r := range set.Required {
			alternatives[i] = strings.Join(r, ", ")
		}
		faults.Add("", fmt.Sprintf("%s needs the fields %s", d.Name, strings.Join(alternatives, "; or ")))
	}
	for name, schema := range set.Fields {
		v, given := fields[name]
		if !given || v == nil {
			continue
		}
		switch schema.Type {
		case "checkbox":
			switch v {
			case true, false, "true", "false":
			default:
				faults.Add(name, "must be true or false")
			}
		case "select":
			s := fmt.Sprint(v)
			ok := len(schema.Options) == 0
			for _, o := range schema.Options {
				ok = ok || o == s
			}
			if !ok {
				faults.Add(name, fmt.Sprintf("%q is not one of %s", s, strings.Join(schema.Options, ", ")))
			}
		case "password":
			if _, ok := v.(string); !ok {
				faults.Add(name, "must be text")
			}
		}
	}
	return faults
}

func anyComplete(sets [][]string, fields map[string]any) bool {
	for _, set := range sets {
		complete := true
		for _, f := range set {
			v, ok := fields[f]
			complete = complete && ok && v != nil && v != ""
		}
		if complete {
			return true
		}
	}
	return false
}
