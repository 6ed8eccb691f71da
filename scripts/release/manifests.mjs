/**
 * Returns the package manager manifests (Homebrew, Scoop and winget), keyed by file name.
 * @param address the URL of the release folder
 * @param sum returns a release file's SHA-256
 */
export function manifests({ version, description, license, homepage, address, sum }) {
  const file = (name) => ({ url: `${address}/${name}`, sha256: sum(name) });
  const source = (name) => {
    const { url, sha256 } = file(name);
    return `url "${url}"\n      sha256 "${sha256}"`;
  };
  const windows = file(`mgw-${version}-win-x64.zip`);
  return {
    'mgw.rb': `class Mgw < Formula
  desc "Video and speech jobs on a media generation gateway"
  homepage "${homepage}"
  version "${version}"
  license "${license}"

  on_macos do
    ${source(`mgw-${version}.tgz`).replace('\n      ', '\n    ')}
    depends_on "node"
  end

  on_linux do
    on_intel do
      ${source(`mgw-${version}-linux-x64`)}
    end
    on_arm do
      ${source(`mgw-${version}-linux-arm64`)}
    end
  end

  def install
    if OS.mac?
      system "npm", "install", *std_npm_args
      bin.install_symlink libexec.glob("bin/*")
    else
      bin.install Dir["mgw-*"].first => "mgw"
    end
    generate_completions_from_executable(bin/"mgw", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/mgw --version")
  end
end
`,
    'mgw.json': `${JSON.stringify(
      {
        ...{ version, description, homepage, license, bin: 'mgw.exe' },
        architecture: { '64bit': { url: windows.url, hash: windows.sha256 } },
      },
      undefined,
      2,
    )}\n`,
    'mgw.yaml': `PackageIdentifier: mgw.mgw
PackageVersion: ${version}
PackageLocale: en-US
Publisher: The maintainers of mgw
PackageName: mgw
License: ${license}
ShortDescription: Video and speech jobs on a media generation gateway
Installers:
  - Architecture: x64
    InstallerType: zip
    NestedInstallerType: portable
    NestedInstallerFiles:
      - RelativeFilePath: mgw.exe
        PortableCommandAlias: mgw
    InstallerUrl: ${windows.url}
    InstallerSha256: ${windows.sha256.toUpperCase()}
ManifestType: singleton
ManifestVersion: 1.6.0
`,
  };
}
