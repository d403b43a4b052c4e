package servertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// certHost is the only name in the certificates. 127.0.0.1 reaches the same server under a name
// that is not in them.
const certHost = "localhost"

// CAFile is the CA's certificate that WriteCerts writes.
func (s *Server) CAFile() string { return filepath.Join(s.dir, "ca.crt") }

// CertFile is the server's certificate that WriteCerts writes.
func (s *Server) CertFile() string { return filepath.Join(s.dir, "server.crt") }

// KeyFile is the key that WriteCerts writes.
func (s *Server) KeyFile() string { return filepath.Join(s.dir, "server.key") }

// WriteCerts writes a server certificate for localhost, not for 127.0.0.1, its key, and the CA
// certificate. All servers of a process share the CA, so the nodes of a cluster trust each other.
func (s *Server) WriteCerts() error {
	ca, err := theCA()
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	leaf, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "a server of a test"},
		NotBefore:    ca.cert.NotBefore,
		NotAfter:     ca.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		// Nodes of a Redis Cluster are also each other's clients.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{certHost},
	}, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return err
	}
	write := func(path, kind string, der []byte) error {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		return errors.Join(os.WriteFile(path, text, 0o600), s.account.own(path))
	}
	return errors.Join(write(s.CAFile(), "CERTIFICATE", ca.cert.Raw), write(s.CertFile(), "CERTIFICATE", leaf),
		write(s.KeyFile(), "PRIVATE KEY", keyDER))
}

// ClientTLS returns the configuration of a client that trusts only the certificates of WriteCerts.
func ClientTLS() (*tls.Config, error) {
	ca, err := theCA()
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return &tls.Config{RootCAs: pool, ServerName: certHost, MinVersion: tls.VersionTLS12}, nil
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var theCA = sync.OnceValues(func() (ca authority, err error) {
	if ca.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return ca, err
	}
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "CA of the tests"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &ca.key.PublicKey, ca.key)
	if err != nil {
		return ca, err
	}
	ca.cert, err = x509.ParseCertificate(der)
	return ca, err
})
