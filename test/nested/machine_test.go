// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nested

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// machine is the running virtual machine.
type machine struct {
	lines chan string // of its console
	done  chan error
	ip    string
}

// boot starts it, with the files of a folder in its /; one of them is its job.
func (b bed) boot(files string, own machinePort) machine {
	b.t.Helper()
	// No offloads: the switch would see what is still to be done.
	cmd := exec.CommandContext(b.t.Context(), "ip", "netns", "exec", netnsOf+host,
		filepath.Join("..", "..", "hack", "e2e-nested.sh"), "boot", "sh /machine.sh", files,
		"-netdev", "tap,id=nic,ifname="+device+",script=no,downscript=no,vhost=off,vnet_hdr=off",
		"-device", fmt.Sprintf("virtio-net-pci,netdev=nic,mac=%s,romfile=", own.MACAddress))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the script and the machine end together
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatalf("starting the virtual machine: %v", err)
	}
	vm := machine{make(chan string, 10_000), make(chan error, 1), own.ip()}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			fmt.Println("  machine:", s.Text())
			vm.lines <- s.Text()
		}
		close(vm.lines)
		vm.done <- cmd.Wait()
	}()
	return vm
}

// wait waits for a step that the machine tells.
func (m machine) wait(t *testing.T, step string) {
	t.Helper()
	late := time.After(boots)
	for {
		select {
		case line, ok := <-m.lines:
			if !ok {
				t.Fatalf("the virtual machine has ended before it was %s: %v", step, <-m.done)
			}
			if strings.Contains(line, "step: "+step) {
				return
			}
		case <-late:
			t.Fatalf("the virtual machine is not %s within %s", step, boots)
		}
	}
}

// next has the machine go on with its next step.
func (b bed) next(m machine) {
	b.t.Helper()
	b.eventually("telling the virtual machine to go on", func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(m.ip, "7000"), 20*time.Second)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

// end waits until it ends, and wants it content.
func (m machine) end(t *testing.T) {
	t.Helper()
	select {
	case err := <-m.done:
		if err != nil {
			t.Errorf("the virtual machine: %v", err)
		}
	case <-time.After(boots):
		t.Error("the virtual machine does not end")
	}
}
