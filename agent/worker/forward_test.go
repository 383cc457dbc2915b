package worker

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/coopr/coopr/rpc/proto"
)

// forwardPeer serves Forward alone.
type forwardPeer struct{ pb.UnimplementedPeerServer }

func (forwardPeer) Forward(s grpc.BidiStreamingServer[pb.ForwardUp, pb.ForwardDown]) error {
	return forward(s)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestForward checks that bytes get to a TCP server and back, with the end of each direction, and that the agent's own machine is refused.
func TestForward(t *testing.T) {
	echo := listen(t)
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	l := listen(t)
	server := grpc.NewServer()
	pb.RegisterPeerServer(server, forwardPeer{})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	open := func(address string, own bool) (grpc.BidiStreamingClient[pb.ForwardUp, pb.ForwardDown], error) {
		s, err := pb.NewPeerClient(conn).Forward(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&pb.ForwardUp{Address: address, OwnHost: own}); err != nil {
			t.Fatal(err)
		}
		_, err = s.Recv()
		return s, err
	}
	for address, want := range map[string]codes.Code{
		echo.Addr().String(): codes.PermissionDenied, "[::ffff:127.0.0.1]:22": codes.PermissionDenied, "[::1]:22": codes.PermissionDenied,
		"169.254.169.254:80": codes.PermissionDenied, "0.0.0.0:22": codes.PermissionDenied, "node:22": codes.InvalidArgument,
	} {
		if _, err := open(address, false); status.Code(err) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	s, err := open(echo.Addr().String(), true)
	if err != nil {
		t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("bytes "), 100_000)
	go func() {
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), forwardPiece)
			if s.Send(&pb.ForwardUp{Data: rest[:n]}) != nil {
				return
			}
			rest = rest[n:]
		}
		_ = s.CloseSend()
	}()
	var got []byte
	for {
		piece, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, piece.Data...)
	}
	if !bytes.Equal(got, sent) {
		t.Errorf("%d bytes come back, of %d", len(got), len(sent))
	}
}
