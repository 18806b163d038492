package admission

// ring is a circular list through nodes that its elements embed, so that it
// never allocates. The zero ring is empty.
type ring[T any] struct {
	head *node[T]
	n    int
}

// node is a place in at most one ring.
type node[T any] struct {
	prev, next *node[T]
	v          T
}

// push puts n at the tail.
func (r *ring[T]) push(n *node[T]) {
	r.n++
	if r.head == nil {
		n.prev, n.next = n, n
		r.head = n
		return
	}
	n.prev, n.next = r.head.prev, r.head
	n.prev.next, n.next.prev = n, n
}

// remove takes n out; when it was the head, the next one becomes head.
func (r *ring[T]) remove(n *node[T]) {
	r.n--
	if r.n == 0 {
		r.head = nil
	} else if r.head == n {
		r.head = n.next
	}
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
}

// turn makes the second the head and the head the tail.
func (r *ring[T]) turn() {
	if r.head != nil {
		r.head = r.head.next
	}
}

// tail returns the last node of a ring that is not empty.
func (r *ring[T]) tail() *node[T] { return r.head.prev }

// heaped is an element of a heap: it has a rank and remembers its position.
type heaped interface {
	rank() int64
	setPos(int)
}

// heap is a binary heap with the lowest rank first. The zero heap is empty.
type heap[T heaped] []T

func (h *heap[T]) push(v T) {
	*h = append(*h, v)
	h.up(len(*h) - 1)
}

// remove takes out the element at position i.
func (h *heap[T]) remove(i int) {
	s := *h
	last := len(s) - 1
	s[i].setPos(-1)
	moved := s[last]
	var none T
	s[last] = none
	*h = s[:last]
	if i == last {
		return
	}
	s[i] = moved
	h.fix(i)
}

// fix restores the order after the rank at position i changed.
func (h *heap[T]) fix(i int) {
	if !h.up(i) {
		h.down(i)
	}
}

func (h *heap[T]) up(i int) (moved bool) {
	s := *h
	v := s[i]
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent].rank() <= v.rank() {
			break
		}
		s[i] = s[parent]
		s[i].setPos(i)
		i, moved = parent, true
	}
	s[i] = v
	v.setPos(i)
	return moved
}

func (h *heap[T]) down(i int) {
	s := *h
	v := s[i]
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if child+1 < len(s) && s[child+1].rank() < s[child].rank() {
			child++
		}
		if v.rank() <= s[child].rank() {
			break
		}
		s[i] = s[child]
		s[i].setPos(i)
		i = child
	}
	s[i] = v
	v.setPos(i)
}
