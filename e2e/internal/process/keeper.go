package process

import (
	"sync"
	"time"
)

// restartDelay is the pause before a child that ended is started again.
const restartDelay = 500 * time.Millisecond

// Keeper starts a child again whenever it ends, as a kubelet does with the containers of a static pod.
type Keeper struct {
	start func() (*Process, error)

	mu       sync.Mutex
	child    *Process
	restarts int
	stopped  bool
	ended    chan struct{}
}

// Keep starts the child and keeps it running until Stop.
func Keep(start func() (*Process, error)) (*Keeper, error) {
	child, err := start()
	if err != nil {
		return nil, err
	}
	k := &Keeper{start: start, child: child, ended: make(chan struct{})}
	go k.run()
	return k, nil
}

func (k *Keeper) run() {
	defer close(k.ended)
	for {
		<-k.Child().Done()
		time.Sleep(restartDelay)
		k.mu.Lock()
		if k.stopped {
			k.mu.Unlock()
			return
		}
		if child, err := k.start(); err == nil {
			k.child = child
			k.restarts++
		}
		k.mu.Unlock()
	}
}

// Child is the one that runs, or that ended last.
func (k *Keeper) Child() *Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.child
}

// Restarts counts how often the child was started again.
func (k *Keeper) Restarts() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.restarts
}

// Stop kills the child for good.
func (k *Keeper) Stop() {
	k.mu.Lock()
	k.stopped = true
	child := k.child
	k.mu.Unlock()
	child.Kill()
	<-k.ended
}
