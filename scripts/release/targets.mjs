/** The version of Node in the executables. */
export const nodeVersion = '26.10.0';

/**
 * The platforms that have an executable. `integrity` pins the npm package that carries the platform's Node.
 * macOS is not among them: docs/decisions/no-macos-executable.md.
 */
export const targets = [
  {
    name: 'linux-x64',
    binary: 'package/bin/node',
    integrity:
      'sha512-OmAztarr1gK4PD+sNyoku4N5Q40d8eqMuLjNa/zRvxF33aCsVKVIQLs4V5HYPWSWWlMiTdkmbZE/6Phigma0hw==',
    maxBytes: 130e6,
  },
];
