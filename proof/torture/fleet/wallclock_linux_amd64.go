package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// A wallClock shows only this process a modified wall clock. Go reads the time from the kernel's
// vDSO, not through the C library, so libfaketime does not work, and time namespaces do not cover
// the wall clock. But every process gets its own copy of the vDSO when it writes to it. Here its
// clock_gettime becomes a jump to a system call whose answer for CLOCK_REALTIME is moved. Other
// clocks do not change.
type wallClock struct{ offset *atomic.Int64 } // seconds

// stub is:
//
//	mov eax, SYS_clock_gettime; syscall; test edi, edi; jne out; mov rcx, imm64; mov rcx, [rcx]; add [rsi], rcx; out: ret
var stub = []byte{
	0xb8, 228, 0, 0, 0,
	0x0f, 0x05,
	0x85, 0xff,
	0x75, 16,
	0x48, 0xb9, 0, 0, 0, 0, 0, 0, 0, 0,
	0x48, 0x8b, 0x09,
	0x48, 0x01, 0x0e,
	0xc3,
}

const stubAddress = 13 // offset of imm64

func newWallClock() (*wallClock, error) {
	page, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE|syscall.PROT_EXEC,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	const room = 64
	offset := unsafe.Pointer(&page[room])
	copy(page, stub)
	binary.LittleEndian.PutUint64(page[stubAddress:], uint64(uintptr(offset)))

	from, size, err := vdso()
	if err != nil {
		return nil, err
	}
	image := make([]byte, size)
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	if _, err := mem.ReadAt(image, int64(from)); err != nil {
		return nil, err
	}
	at, err := symbol(image, "__vdso_clock_gettime")
	if err != nil {
		return nil, err
	}
	// mov rax, imm64
	jump := append([]byte{0x48, 0xb8}, binary.LittleEndian.AppendUint64(nil,
		uint64(uintptr(unsafe.Pointer(&page[0]))))...)
	// jmp rax
	jump = append(jump, 0xff, 0xe0)
	if at+uint64(len(jump)) > size {
		return nil, errors.New("the vDSO's clock_gettime is too short")
	}
	// Writing through /proc/self/mem ignores the protection, and makes the page private.
	write, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer write.Close()
	if _, err := write.WriteAt(jump, int64(from+at)); err != nil {
		return nil, err
	}
	w := &wallClock{offset: (*atomic.Int64)(offset)}
	before := time.Now().Unix()
	w.offset.Store(1000)
	shown := time.Now().Unix() - before
	w.offset.Store(0)
	if shown < 1000 || shown > 1001 {
		return nil, fmt.Errorf("the wall clock was set by 1000 s and shows %d", shown)
	}
	return w, nil
}

// jump moves the clock by whole seconds.
func (w *wallClock) jump(by time.Duration) { w.offset.Add(int64(by / time.Second)) }

func vdso() (from, size uint64, err error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			span, _, _ := strings.Cut(line, " ")
			low, high, _ := strings.Cut(span, "-")
			from, _ := strconv.ParseUint(low, 16, 64)
			to, err := strconv.ParseUint(high, 16, 64)
			return from, to - from, err
		}
	}
	return 0, 0, errors.New("this process has no vDSO")
}

// symbol returns the address of a function in the image.
func symbol(image []byte, name string) (uint64, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == name {
			return s.Value, nil
		}
	}
	return 0, fmt.Errorf("the vDSO has no %s", name)
}
