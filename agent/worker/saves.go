package worker

import pb "github.com/coopr/coopr/rpc/proto"

// saves holds the values of plugins that the leader has not confirmed yet, in order. They are numbered:
// the last one has the number last. The worker's lock guards it.
type saves struct {
	list   []*pb.SaveState
	last   uint64
	unsent int // how many at the end of list were not sent in this session
}

// add adds a value. It replaces an older one of the same attempt and key that was not sent yet.
func (s *saves) add(v *pb.SaveState) {
	for i := len(s.list) - s.unsent; i < len(s.list); i++ {
		if old := s.list[i]; old.Task == v.Task && old.Fence == v.Fence && old.Key == v.Key {
			s.list[i] = v
			return
		}
	}
	s.list = append(s.list, v)
	s.last++
	s.unsent++
}

// fresh returns the values that were not sent in this session, and the number of the last one. They count
// as sent then.
func (s *saves) fresh() (list []*pb.SaveState, last uint64) {
	list = s.list[len(s.list)-s.unsent:]
	s.unsent = 0
	if len(list) == 0 {
		return nil, 0
	}
	return list, s.last
}

// all is like fresh for a new session: it returns every value that is not confirmed.
func (s *saves) all() (list []*pb.SaveState, last uint64) {
	s.unsent = len(s.list)
	return s.fresh()
}

// confirm forgets the values up to a number.
func (s *saves) confirm(number uint64) {
	first := s.last - uint64(len(s.list)) // the number before that of the first one
	if number <= first {
		return
	}
	s.list = s.list[min(int(number-first), len(s.list)-s.unsent):]
	if len(s.list) == 0 {
		s.list = nil
	}
}
