/** What the flags of `jobs gallery` say. */
export interface GalleryOptions {
  batch?: string;
  since?: string;
  limit?: number;
  output?: string;
  force?: boolean;
  copy?: boolean;
  serve?: boolean;
  port?: number;
}
