package blobs

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// pieceSize is how much of a blob goes into one message.
const pieceSize = 256 << 10

// Server serves blobs and sets of resource versions to other agents.
type Server struct{ Cache *Cache }

// Blob sends a blob that this agent has.
func (s Server) Blob(r *pb.BlobRequest, out grpc.ServerStreamingServer[pb.BlobPiece]) error {
	if err := s.admitBlob(out.Context(), r); err != nil {
		return err
	}
	store, err := s.Cache.Store()
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	f, err := store.Open(r.Sha256)
	switch {
	case errors.Is(err, ErrCorrupt):
		s.Cache.Notify() // the store has removed it, so fetch it again
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, ErrMissing):
		return status.Error(codes.NotFound, err.Error())
	case err != nil:
		return err
	}
	defer f.Close()
	store.Touch(r.Sha256)
	buf := make([]byte, pieceSize)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if err := out.Send(&pb.BlobPiece{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Hold returns once a blob is on this agent's disk.
func (s Server) Hold(ctx context.Context, r *pb.HoldRequest) (*pb.HoldResponse, error) {
	store, err := s.Cache.Store()
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	if f, err := store.Open(r.Sha256); err == nil {
		store.Touch(r.Sha256)
		return &pb.HoldResponse{}, f.Close()
	}
	return &pb.HoldResponse{}, s.Cache.fetch(ctx, r.Sha256, r.Size, r.From)
}

// ResourceSet returns a set of resource versions, or the set in force if the number
// is 0.
func (s Server) ResourceSet(ctx context.Context, r *pb.ResourceSetRequest) (*pb.ResourceSetResponse, error) {
	m := s.Cache.cfg.Supervisor.Member()
	if m == nil {
		return nil, status.Error(codes.Unavailable, "this agent holds no replicated state")
	}
	if err := admit(ctx, s.Cache.cfg.Ring, r.Tenant, r.Ticket, time.Now()); err != nil {
		return nil, err
	}
	set, ok := m.Machine.View().ResourceSet(r.Tenant, r.Number)
	if r.Number == 0 {
		if set, ok = m.Machine.View().ResourcesInForce(r.Tenant); !ok {
			set, ok = &model.ResourceSet{Tenant: r.Tenant}, true
		}
	}
	if !ok {
		return nil, status.Errorf(codes.NotFound, "tenant %s no longer has set %d of plugin resources", r.Tenant, r.Number)
	}
	out, err := logformat.EncodeResourceSet(set)
	return &pb.ResourceSetResponse{Set: out}, err
}
