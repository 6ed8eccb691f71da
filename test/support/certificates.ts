import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { isIPv4 } from 'node:net';

/** A certificate and its private key, both in PEM. */
export interface Certificate {
  cert: string;
  key: string;
}

/** A certificate's fields. */
export interface Subject {
  /** The host names and IPv4 addresses for which the certificate is valid. */
  hosts: string[];
  /** The start of the validity period. By default, the period lasts from yesterday until tomorrow. */
  notBefore?: Date;
  notAfter?: Date;
}

/** A certificate authority that issues certificates for one test. */
export interface Authority {
  /** The authority's certificate in PEM, for NODE_EXTRA_CA_CERTS. */
  cert: string;
  issue(subject: Subject): Certificate;
}

const dayMs = 86_400_000;

/** Returns a new certificate authority. */
export function newAuthority(): Authority {
  const { privateKey, publicKey } = keyPair();
  const name = 'mgw test authority';
  const about = { name, issuer: name, publicKey, signer: privateKey };
  return {
    cert: pem(certificate({ ...about, subject: { hosts: [] }, isAuthority: true })),
    issue: (subject) => {
      const own = keyPair();
      const issued = {
        name: 'mgw test',
        issuer: name,
        publicKey: own.publicKey,
        signer: privateKey,
        subject,
      };
      return { cert: pem(certificate(issued)), key: privatePem(own.privateKey) };
    },
  };
}

/** Returns a self-signed certificate. */
export function selfSigned(subject: Subject): Certificate {
  const { privateKey, publicKey } = keyPair();
  const name = 'mgw test, self-signed';
  const own = { name, issuer: name, publicKey, signer: privateKey, subject };
  return { cert: pem(certificate(own)), key: privatePem(privateKey) };
}

function keyPair(): { privateKey: KeyObject; publicKey: KeyObject } {
  return generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
}

function privatePem(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' }).toString();
}

interface Contents {
  name: string;
  issuer: string;
  publicKey: KeyObject;
  signer: KeyObject;
  subject: Subject;
  isAuthority?: boolean;
}

// Object identifiers in DER: ecdsa-with-SHA256, commonName, basicConstraints, subjectAltName.
const oid = {
  ecdsa: Buffer.from('06082a8648ce3d040302', 'hex'),
  commonName: Buffer.from('0603550403', 'hex'),
  basicConstraints: Buffer.from('0603551d13', 'hex'),
  altName: Buffer.from('0603551d11', 'hex'),
};
const tag = { integer: 0x02, bits: 0x03, octets: 0x04, utf8: 0x0c, sequence: 0x30, set: 0x31, utcTime: 0x17 };

// Encodes an X.509 version 3 certificate (RFC 5280 section 4.1).
function certificate({ name, issuer, publicKey, signer, subject, isAuthority }: Contents): Buffer {
  const { notBefore = new Date(Date.now() - dayMs), notAfter = new Date(Date.now() + dayMs) } = subject;
  const algorithm = der(tag.sequence, oid.ecdsa);
  const signed = der(
    tag.sequence,
    der(0xa0, der(tag.integer, Buffer.from([2]))),
    der(tag.integer, Buffer.from(String(Math.ceil(Math.random() * 1e9)))),
    algorithm,
    named(issuer),
    der(tag.sequence, time(notBefore), time(notAfter)),
    named(name),
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, der(tag.sequence, isAuthority ? constraints() : altNames(subject.hosts))),
  );
  const signature = sign('sha256', signed, signer);
  return der(tag.sequence, signed, algorithm, der(tag.bits, Buffer.from([0]), signature));
}

function named(text: string): Buffer {
  return der(tag.sequence, der(tag.set, der(tag.sequence, oid.commonName, der(tag.utf8, Buffer.from(text)))));
}

function time(date: Date): Buffer {
  const digits = date.toISOString().replace(/[-:T]|\.\d+/g, '');
  return der(tag.utcTime, Buffer.from(digits.slice(2)));
}

function constraints(): Buffer {
  const isAuthority = der(tag.sequence, der(0x01, Buffer.from([0xff])));
  return der(tag.sequence, oid.basicConstraints, der(tag.octets, isAuthority));
}

function altNames(hosts: readonly string[]): Buffer {
  const names = hosts.map((host) =>
    isIPv4(host) ? der(0x87, Buffer.from(host.split('.').map(Number))) : der(0x82, Buffer.from(host)),
  );
  return der(tag.sequence, oid.altName, der(tag.octets, der(tag.sequence, ...names)));
}

function der(type: number, ...contents: Uint8Array[]): Buffer {
  const body = Buffer.concat(contents);
  if (body.length < 0x80) return Buffer.concat([Buffer.from([type, body.length]), body]);
  // DER requires the shortest form of a length: from 128 on, a byte with the number of length bytes, then one byte up
  // to 255, else two.
  const length = Buffer.from(body.length.toString(16).padStart(body.length < 0x100 ? 2 : 4, '0'), 'hex');
  return Buffer.concat([Buffer.from([type, 0x80 | length.length]), length, body]);
}

function pem(bytes: Buffer): string {
  const lines = bytes.toString('base64').match(/.{1,64}/g) ?? [];
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n');
}
