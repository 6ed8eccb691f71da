import { BlockList, isIPv4, isIPv6 } from 'node:net';

// Ranges that are private, of one machine or link, shared behind a carrier, or not for single hosts at all.
const privateRanges: [string, number, 'ipv4' | 'ipv6'][] = [
  ['0.0.0.0', 8, 'ipv4'],
  ['10.0.0.0', 8, 'ipv4'],
  ['100.64.0.0', 10, 'ipv4'],
  ['127.0.0.0', 8, 'ipv4'],
  ['169.254.0.0', 16, 'ipv4'],
  ['172.16.0.0', 12, 'ipv4'],
  ['192.0.0.0', 24, 'ipv4'],
  ['192.168.0.0', 16, 'ipv4'],
  ['198.18.0.0', 15, 'ipv4'],
  ['224.0.0.0', 4, 'ipv4'],
  ['240.0.0.0', 4, 'ipv4'],
  ['::', 128, 'ipv6'],
  ['::1', 128, 'ipv6'],
  ['64:ff9b:1::', 48, 'ipv6'],
  ['fc00::', 7, 'ipv6'],
  ['fe80::', 10, 'ipv6'],
  ['fec0::', 10, 'ipv6'],
  ['ff00::', 8, 'ipv6'],
];
let blockList: BlockList | undefined;

function isBlocked(address: string, family: 'ipv4' | 'ipv6'): boolean {
  if (blockList === undefined) {
    blockList = new BlockList();
    for (const range of privateRanges) blockList.addSubnet(...range);
  }
  return blockList.check(address, family);
}

const privateName = /(^|\.)(localhost|localdomain|local|internal|lan|home\.arpa)$/;

/**
 * True for an IP address that is not one of the public internet: private, loopback, link-local, multicast or
 * reserved, also where it is written inside an IPv6 address (mapped, compatible, NAT64, 6to4).
 */
export function isPrivateAddress(address: string): boolean {
  if (isIPv4(address)) return isBlocked(address, 'ipv4');
  if (!isIPv6(address)) return false;
  const canonical = new URL(`http://[${address.replace(/%.*$/, '')}]`).hostname.slice(1, -1);
  const inner = embeddedIpv4(canonical);
  return isBlocked(canonical, 'ipv6') || (inner !== undefined && isBlocked(inner, 'ipv4'));
}

function embeddedIpv4(address: string): string | undefined {
  const tail = /^(?:::ffff:|::|64:ff9b::)([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(address);
  const [, high, low] = tail ?? /^2002:([0-9a-f]{1,4}):([0-9a-f]{1,4}):/.exec(address) ?? [];
  if (high === undefined || low === undefined) return undefined;
  const [first, second] = [Number.parseInt(high, 16), Number.parseInt(low, 16)];
  return [first >> 8, first & 255, second >> 8, second & 255].join('.');
}

/**
 * True for a host as the URL parser spells it (lower case, IPv6 in brackets) that is a private address, or a
 * name that only a private network knows. Nothing is looked up.
 */
export function isPrivateHost(hostname: string): boolean {
  const host = hostname.replace(/\.$/, '').replace(/^\[(.*)\]$/, '$1');
  if (isIPv4(host) || isIPv6(host)) return isPrivateAddress(host);
  return !host.includes('.') || privateName.test(host);
}
